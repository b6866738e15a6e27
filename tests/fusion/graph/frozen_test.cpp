// Graphs as plans.

#include "quanta/fusion/graph/frozen.h"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/nn/module.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::graph {
namespace {

using test::NetBuilder;

Model small_net() {
  Generator generator(7);
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string weight = builder.constant(randn({4, 3, 3, 3}, generator));
  const std::string conv = builder.node("Conv", {x, weight});
  const std::string relu = builder.node("Relu", {conv});
  return from_onnx(builder.finish({relu, builder.node("GlobalAveragePool", {relu})}));
}

void check_same(const Model& net, const FrozenGraph& fast, std::span<const Tensor> inputs) {
  const std::vector<Tensor> expected = net.run(inputs);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const std::vector<Tensor> got = fast.run(inputs);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].equal(expected[i]));
  }
}

TEST_CASE("frozen graph: any sizes give what the model gives and the last eight are kept") {
  const Model net = small_net();
  const FrozenGraph fast(net);
  Generator generator(8);
  for (std::int64_t size = 3; size < 14; ++size) {
    const Tensor x = randn({1 + size % 2, 3, size, size + 1}, generator);
    check_same(net, fast, {&x, 1});
    const Tensor other = randn(x.sizes(), generator);
    check_same(net, fast, {&other, 1});
  }
  CHECK(fast.info().plans == 8);
  CHECK(fast.info().eager_nodes == 0);
}

TEST_CASE("frozen graph: nodes whose sizes depend on values run between plans") {
  NetBuilder builder;
  const std::string x = builder.input("x");
  const std::string y = builder.input("y");
  const std::string sum = builder.node("Exp", {builder.node("Add", {x, y})});
  const std::string found = builder.node("NonZero", {builder.node("Floor", {sum})});
  const std::string count = builder.node("Cast", {found}, {{"to", std::int64_t{1}}});
  const Model net = from_onnx(builder.finish({builder.node("ReduceSum", {count}), sum}));
  const FrozenGraph fast(net);
  for (const float start : {0.0F, -3.0F, 2.0F}) {
    const std::vector<Tensor> inputs{Tensor::from_values({start, 1.0F, -9.0F}),
                                     Tensor::from_values({1.0F, -7.0F, 9.5F})};
    check_same(net, fast, inputs);
  }
  CHECK(fast.info().eager_nodes >= 1);
  CHECK(fast.info().steps >= 2);
  CHECK(fast.to_string().find("eager: NonZero") != std::string::npos);
}

TEST_CASE("frozen graph: threads with inputs of several sizes share it") {
  const Model net = small_net();
  const FrozenGraph fast(net);
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      Generator generator(20 + t);
      for (int i = 0; i < 20; ++i) {
        const Tensor x = randn({1, 3, 4 + i % 3, 5}, generator);
        const std::vector<Tensor> expected = net.run({&x, 1});
        const std::vector<Tensor> got = fast.run({&x, 1});
        right[t] += got[0].equal(expected[0]) && got[1].equal(expected[1]) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : right) CHECK(count == 20);
}

TEST_CASE("frozen graph: a model with hooks is refused and wrong inputs are named") {
  Model net = small_net();
  const FrozenGraph fast(net);
  CHECK_THROWS_WITH_AS(fast.run(NamedTensors{{"z", Tensor::zeros({1})}}),
                       doctest::Contains("'x' is missing"), ArgumentError);
  CHECK_THROWS_AS(fast(Tensor::zeros({1, 3, 5, 5})), ArgumentError);  // two outputs
  net.get_submodule("Conv_0")->register_forward_hook(
      [](const nn::Module&, const Tensor&, const Tensor& output) { return output; });
  CHECK_THROWS_WITH_AS(FrozenGraph{net}, doctest::Contains("no hooks"), ArgumentError);
}

}  // namespace
}  // namespace quanta::graph
