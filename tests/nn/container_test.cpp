#include "quanta/nn/container.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

TEST_CASE("Sequential: modules run in order and are named by position") {
  Sequential net(Linear({.in_features = 3, .out_features = 2}), ReLU());
  net.push_back(make_module<Linear>(LinearOptions{.in_features = 2, .out_features = 1}));
  net.eval();
  CHECK(net.size() == 3);
  const StateDict state = net.state_dict();
  CHECK(state.contains("0.weight"));
  CHECK(state.contains("2.bias"));
  const Tensor x = randn({4, 3});
  CHECK(net(x).equal(net[2](net[1](net[0](x)))));
  CHECK_THROWS_WITH_AS(static_cast<void>(net[3]),
                       doctest::Contains("index: expected less than 3, got 3"), ArgumentError);
  CHECK(Sequential()(x).is_same(x));
}

TEST_CASE("Sequential: a replaced child takes part in the next call") {
  Sequential net{Identity(), Identity()};
  net.replace_child("1", make_module<ReLU>());
  CHECK(net(Tensor::from_values({-1.0F})).item() == 0.0);
  CHECK(to_string(net) == "Sequential(\n  (0): Identity()\n  (1): ReLU()\n)");
}

TEST_CASE("Sequential: a copy has modules of its own") {
  Sequential net{Identity()};
  Sequential copy(net);
  copy.replace_child("0", make_module<ReLU>());
  CHECK(net(Tensor::from_values({-1.0F})).item() == -1.0);
  CHECK(copy(Tensor::from_values({-1.0F})).item() == 0.0);
}

TEST_CASE("ModuleList: a forward that walks the list sees swapped modules") {
  struct Net : Module {
    Child<ModuleList> blocks;
    Net() {
      register_module("blocks", blocks);
      blocks->push_back(Identity()).push_back(make_module<Identity>());
    }
    Tensor forward(const Tensor& x) const override {
      Tensor y = x;
      for (std::size_t i = 0; i < blocks->size(); ++i) y = (*blocks.operator->())[i](y);
      return y;
    }
  };
  Net net;
  CHECK(net(Tensor::from_values({-1.0F})).item() == -1.0);
  net.get_submodule("blocks")->replace_child("1", make_module<ReLU>());
  CHECK(net(Tensor::from_values({-1.0F})).item() == 0.0);
  CHECK_THROWS_AS(net.blocks(Tensor::ones({1})), UnsupportedError);
}

TEST_CASE("ModuleDict: modules are found by name in the order of insertion") {
  ModuleDict modules;
  modules.insert("first", ReLU()).insert("second", make_module<Identity>());
  CHECK(modules.keys() == std::vector<std::string>{"first", "second"});
  CHECK(modules.contains("second"));
  CHECK(modules["first"](Tensor::from_values({-1.0F})).item() == 0.0);
  modules.insert("first", Identity());
  CHECK(modules.size() == 2);
  CHECK(modules["first"](Tensor::from_values({-1.0F})).item() == -1.0);
  CHECK_THROWS_WITH_AS(static_cast<void>(modules["third"]), doctest::Contains("third"),
                       ArgumentError);
  CHECK_THROWS_AS(modules(Tensor::ones({1})), UnsupportedError);
}

TEST_CASE("QuantWrapper: the stubs take the qconfig and mode of what is wrapped") {
  auto linear = make_module<Linear>(LinearOptions{.in_features = 2, .out_features = 2});
  linear->eval();
  linear->set_qconfig(default_qconfig());
  const QuantWrapper wrapper(linear);
  CHECK_FALSE(wrapper.is_training());
  CHECK(wrapper.quant->qconfig() != nullptr);
  CHECK(wrapper.dequant->qconfig() != nullptr);
  const Tensor x = randn({3, 2});
  CHECK(wrapper(x).equal((*linear)(x)));
  std::vector<std::string> names;
  for (const auto& child : wrapper.named_children()) names.push_back(child.name);
  CHECK(names == std::vector<std::string>{"quant", "dequant", "module"});
  CHECK_THROWS_AS(QuantWrapper{nullptr}, ArgumentError);
}

}  // namespace
}  // namespace quanta::nn
