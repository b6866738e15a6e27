#include "quanta/runtime/gradient_sink.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

using namespace quanta;
using test::leaf;

namespace {

// Notes what it is told.
struct Noting : autograd::GradientSink {
  std::vector<Tensor> expected;
  std::vector<std::pair<Tensor, Tensor>> taken;
  std::function<bool(const Tensor&)> takes = [](const Tensor&) { return true; };
  std::vector<std::string>* log = nullptr;
  double start = 1.0;

  double begin(std::span<const Tensor> leaves) override {
    expected.assign(leaves.begin(), leaves.end());
    return start;
  }
  bool take(const Tensor& x, const Tensor& gradient) override {
    if (log != nullptr) log->push_back("taken");
    if (!takes(x)) return false;
    taken.emplace_back(x, gradient);
    return true;
  }
};

}  // namespace

TEST_CASE("backward with a sink: leaves are taken as soon as they are complete") {
  const Tensor first = leaf(Tensor::full({2}, 2.0));
  const Tensor second = leaf(Tensor::full({2}, 3.0));
  const Tensor shared = leaf(Tensor::full({2}, 5.0));
  std::vector<std::string> log;
  const Tensor a = mul(first, shared);
  a.register_hook([&](const Tensor&) {
    log.push_back("a");
    return Tensor();
  });
  const Tensor b = mul(a, second);
  b.register_hook([&](const Tensor&) {
    log.push_back("b");
    return Tensor();
  });
  Noting sink;
  sink.log = &log;
  sink.start = 0.5;
  autograd::backward(sum(mul(b, shared)), sink);
  // shared is used first of all, and last: it waits for the end.
  CHECK(log == std::vector<std::string>{"b", "taken", "a", "taken", "taken"});
  REQUIRE(sink.expected.size() == 3);
  REQUIRE(sink.taken.size() == 3);
  CHECK(sink.expected[0].is_same(second));
  CHECK(sink.taken[0].first.is_same(second));
  CHECK(sink.taken[0].second.equal(Tensor::full({2}, 0.5 * 2.0 * 25.0)));
  for (const auto& [x, gradient] : sink.taken) {
    CHECK_FALSE(x.grad().defined());
    if (x.is_same(shared)) CHECK(gradient.equal(Tensor::full({2}, 0.5 * 2.0 * 2.0 * 3.0 * 5.0)));
  }
}

TEST_CASE("backward with a sink: what it leaves is added to grad() after the hooks") {
  const Tensor x = leaf(Tensor::full({2}, 2.0));
  const Tensor y = leaf(Tensor::full({2}, 3.0));
  x.register_hook([](const Tensor& gradient) { return mul_scalar(gradient, 10.0); });
  y.register_hook([](const Tensor& gradient) { return mul_scalar(gradient, 100.0); });
  Noting sink;
  sink.takes = [&](const Tensor& tensor) { return tensor.is_same(y); };
  for (int i = 1; i <= 2; ++i) {
    autograd::backward(sum(mul(x, y)), sink);
    CHECK(x.grad().equal(Tensor::full({2}, 30.0 * i)));
    CHECK_FALSE(y.grad().defined());
    CHECK(sink.taken.back().second.equal(Tensor::full({2}, 200.0)));
  }
}

TEST_CASE("backward with a sink: a leaf alone and errors") {
  const Tensor x = leaf(Tensor::full({}, 2.0));
  Noting sink;
  autograd::backward(x, sink);
  REQUIRE(sink.taken.size() == 1);
  CHECK(sink.taken[0].second.item() == 1.0);
  CHECK_THROWS_AS(autograd::backward(Tensor::ones({}), sink), ArgumentError);
  CHECK_THROWS_AS(autograd::backward(leaf(Tensor::ones({2})), sink), ArgumentError);
  // What the sink throws leaves the tape as it was.
  const Tensor y = mul_scalar(x, 3.0);
  sink.takes = [](const Tensor&) -> bool { throw NumericError("no"); };
  CHECK_THROWS_AS(autograd::backward(y, sink), NumericError);
  CHECK_FALSE(x.grad().defined());
  y.backward();
  CHECK(x.grad().item() == 3.0);
}
