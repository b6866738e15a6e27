#include <vector>

#include "gradients_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/indexing.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradient;
using test::check_gradients;
using test::Inputs;
using test::leaf;

using test::Order;

const std::vector<test::Op>& binary_ops() {
  static const std::vector<test::Op> all{
      [](Inputs inputs) { return add(inputs[0], inputs[1]); },
      [](Inputs inputs) { return sub(inputs[0], inputs[1]); },
      [](Inputs inputs) { return mul(inputs[0], inputs[1]); },
      [](Inputs inputs) { return div(inputs[0], inputs[1]); },
      [](Inputs inputs) { return add_relu(inputs[0], inputs[1]); },
  };
  return all;
}

struct Pair {
  Dims lhs;
  Dims rhs;
};
const std::vector<Pair>& broadcasts() {
  static const std::vector<Pair> all{{{3, 4}, {3, 4}},
                                     {{3, 4}, {4}},
                                     {{4}, {3, 4}},
                                     {{3, 1}, {1, 4}},
                                     {{2, 3, 4, 5}, {3, 1, 1}},
                                     {{2, 3, 2, 2}, {2, 3, 1, 1}},
                                     {{}, {3}},
                                     {{2, 1, 3}, {}}};
  return all;
}

}  // namespace

TEST_CASE("gradients of sums and products agree with finite differences under broadcasting") {
  for (const test::Op& op : binary_ops()) {
    for (const auto& [lhs, rhs] : broadcasts()) {
      check_gradients(op, {leaf(lhs, 1), leaf(rhs, 2, 0.5, 2.0)});
    }
  }
}

TEST_CASE("gradients of sums and products are the same in float32") {
  for (const test::Op& op : binary_ops()) {
    for (const Order order : {Order::Contiguous, Order::ChannelsLast}) {
      for (const Dims& rhs : {Dims{2, 19, 5, 3}, Dims{19, 1, 1}, Dims{2, 19, 1, 1}}) {
        check_float32(op, {leaf({2, 19, 5, 3}, 1), leaf(rhs, 2, 0.5, 2.0)}, order);
      }
    }
  }
}

TEST_CASE("gradients of sums and products reach one side when only that side asks") {
  for (const test::Op& op : binary_ops()) {
    check_gradients(op, {leaf({3, 4}, 1), leaf({4}, 2, 0.5, 2.0).detach()});
    check_gradients(op, {leaf({3, 4}, 1).detach(), leaf({4}, 2, 0.5, 2.0)});
  }
}

TEST_CASE("gradients of a tensor that is both sides add up") {
  check_gradient([](const Tensor& x) { return x * x + x / x - x; }, leaf({5}, 1, 0.5, 2.0));
}

TEST_CASE("gradients of sums and products with a number agree with finite differences") {
  check_gradient([](const Tensor& x) { return add_scalar(x, 1.5); }, leaf({3, 4}));
  check_gradient([](const Tensor& x) { return mul_scalar(x, -2.5); }, leaf({3, 4}));
}

TEST_CASE("gradients of where and masked_fill agree with finite differences") {
  const Tensor mask = gt(leaf({3, 4}, 8).detach(), 0.0);
  check_gradients([&](Inputs inputs) { return where(mask, inputs[0], inputs[1]); },
                  {leaf({3, 4}, 1), leaf({4}, 2)});
  check_gradients([&](Inputs inputs) { return where(mask, inputs[0], inputs[1]); },
                  {leaf({2, 3, 4}, 1), leaf({}, 2)});
  check_gradient([&](const Tensor& x) { return masked_fill(x, mask, 3.0); }, leaf({3, 4}));
  check_gradient([&](const Tensor& x) { return masked_fill(x, mask, 3.0); }, leaf({4}));
}

}  // namespace quanta
