#include <string>
#include <vector>

#include "gradients_support.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/sort.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradient;
using test::Inputs;
using test::leaf;
using test::Order;

const std::vector<Dims>& choices() {
  static const std::vector<Dims> all{{}, {0}, {-1}, {1, 2}, {0, -1}, {0, 1, 2, 3}};
  return all;
}

}  // namespace

TEST_CASE("gradients of sum and mean and var and std agree with finite differences") {
  for (const Dims& dims : choices()) {
    for (const bool keepdim : {false, true}) {
      const Tensor x = leaf({2, 3, 4, 2});
      check_gradient([&](const Tensor& v) { return sum(v, dims, {keepdim}); }, x);
      check_gradient([&](const Tensor& v) { return mean(v, dims, {keepdim}); }, x);
      for (const double correction : {0.0, 1.0}) {
        const StdOptions options{correction, keepdim};
        check_gradient([&](const Tensor& v) { return var(v, dims, options); }, x);
        check_gradient([&](const Tensor& v) { return quanta::std(v, dims, options); }, x);
      }
    }
  }
  check_gradient([](const Tensor& v) { return sum(v); }, leaf({}));
  check_gradient([](const Tensor& v) { return mean(v); }, leaf({}));
}

TEST_CASE("gradients of reductions are the same in float32") {
  for (const Order order : {Order::Contiguous, Order::ChannelsLast}) {
    const std::vector<Tensor> x{leaf({3, 9, 7, 5})};
    check_float32([](Inputs in) { return mean(in[0], {2, 3}, {true}); }, x, order);
    check_float32([](Inputs in) { return sum(in[0], {0, 2}); }, x, order);
    check_float32([](Inputs in) { return var(in[0], {1}); }, x, order);
    check_float32([](Inputs in) { return quanta::std(in[0]); }, x, order);
    check_float32([](Inputs in) { return max(in[0], 1).values; }, x, order);
  }
}

TEST_CASE("gradients of extremes and sorted values agree with finite differences") {
  const Tensor x = leaf({3, 5, 4});
  check_gradient([](const Tensor& v) { return max(v); }, x);
  check_gradient([](const Tensor& v) { return min(v); }, x);
  for (const std::int64_t dim : {0, 1, -1}) {
    for (const bool keepdim : {false, true}) {
      check_gradient([&](const Tensor& v) { return max(v, dim, {keepdim}).values; }, x);
      check_gradient([&](const Tensor& v) { return min(v, dim, {keepdim}).values; }, x);
    }
    check_gradient([&](const Tensor& v) { return sort(v, {.dim = dim}).values; }, x);
    check_gradient([&](const Tensor& v) { return topk(v, 2, {.dim = dim}).values; }, x);
  }
  check_gradient([](const Tensor& v) { return msort(v); }, x);
  check_gradient([](const Tensor& v) { return sort(v).values; }, leaf({}));
  check_gradient([](const Tensor& v) { return max(v, 0).values; }, leaf({}));
}

TEST_CASE("gradients of the extreme of all are shared by equal elements") {
  const Tensor x = Tensor::from_values({2.0F, 3.0F, 1.0F, 3.0F});
  x.set_requires_grad();
  max(x).backward();
  CHECK(x.grad().to_float_vector() == std::vector<float>{0.0F, 0.5F, 0.0F, 0.5F});
}

TEST_CASE("indices of extremes ask for no gradient") {
  const Tensor x = leaf({3, 5});
  CHECK_FALSE(max(x, 1).indices.requires_grad());
  CHECK_FALSE(argmax(x).requires_grad());
  CHECK_FALSE(argsort(x).requires_grad());
}

}  // namespace quanta
