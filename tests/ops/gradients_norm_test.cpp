#include <span>
#include <vector>

#include "gradients_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradients;
using test::Inputs;
using test::leaf;
using test::Order;

const std::vector<Dims>& image_sizes() {
  static const std::vector<Dims> all{
      {7, 3}, {2, 3, 5}, {2, 4, 3, 2}, {2, 2, 3, 2, 2}, {3, 1, 2, 2}};
  return all;
}

// Of weight, bias, mean or variance.
Tensor channel_leaf(const Tensor& x, std::uint64_t seed) {
  return leaf({x.size(1)}, seed, 0.5, 1.5);
}

}  // namespace

TEST_CASE("gradients of batch_norm by given statistics agree with finite differences") {
  for (const Dims& sizes : image_sizes()) {
    const Tensor x = leaf(sizes);
    const Tensor mean = channel_leaf(x, 2).detach();
    const Tensor var = channel_leaf(x, 3).detach();
    check_gradients([&](Inputs in) { return batch_norm(in[0], mean, var, in[1], in[2], 1e-3); },
                    {x, channel_leaf(x, 4), channel_leaf(x, 5)});
    check_gradients([&](Inputs in) { return batch_norm(in[0], mean, var, {}, {}); }, {x});
  }
}

TEST_CASE("gradients of batch_norm by the batch agree with finite differences") {
  for (const Dims& sizes : image_sizes()) {
    const Tensor x = leaf(sizes);
    check_gradients(
        [](Inputs in) { return batch_norm_train(in[0], {}, {}, in[1], in[2], {.eps = 1e-3}); },
        {x, channel_leaf(x, 4), channel_leaf(x, 5)});
    check_gradients([](Inputs in) { return batch_norm_train(in[0], {}, {}, {}, {}); }, {x});
    // A frozen weight, and an input that needs nothing.
    check_gradients([](Inputs in) { return batch_norm_train(in[0], {}, {}, in[1], in[2]); },
                    {x, channel_leaf(x, 4).detach(), channel_leaf(x, 5)});
    check_gradients([](Inputs in) { return batch_norm_train(in[0], {}, {}, in[1], in[2]); },
                    {x.detach(), channel_leaf(x, 4), channel_leaf(x, 5)});
  }
}

TEST_CASE("gradients of batch_norm of a quotient agree with finite differences") {
  for (const Dims& sizes : image_sizes()) {
    const Tensor x = leaf(sizes);
    const Tensor divisor = leaf({x.size(1)}, 6, -1.5, -0.5);
    // An eps of the size of the variance, so that the divisor counts.
    check_gradients(
        [](Inputs in) {
          return batch_norm_train(in[0], {}, {}, in[1], in[2],
                                  {.eps = 0.5, .divisor = in[3], .shift = in[4]});
        },
        {x, channel_leaf(x, 4), channel_leaf(x, 5), divisor, channel_leaf(x, 7)});
    check_gradients(
        [](Inputs in) {
          return batch_norm_train(in[0], {}, {}, {}, {}, {.eps = 0.5, .divisor = in[1]});
        },
        {x.detach(), divisor});
  }
}

TEST_CASE("batch_norm_train: a quotient gives what dividing and adding before it gives") {
  const Tensor x = leaf({3, 5, 4, 2}, 1).detach();
  const Tensor divisor = leaf({1, 5, 1, 1}, 2, -2.0, 2.0).detach();
  const Tensor shift = leaf({1, 5, 1, 1}, 3).detach();
  const Tensor mean = Tensor::full({5}, 0.5, x.dtype());
  const Tensor var = Tensor::full({5}, 2.0, x.dtype());
  const Tensor want_mean = mean.clone();
  const Tensor want_var = var.clone();
  const Tensor want =
      batch_norm_train(add(div(x, divisor), shift), want_mean, want_var, {}, {}, {.eps = 0.1});
  const Tensor got = batch_norm_train(
      x, mean, var, {}, {}, {.eps = 0.1, .divisor = divisor.view({5}), .shift = shift.view({5})});
  const auto check_close = [](const Tensor& lhs, const Tensor& rhs) {
    const std::vector<float> a = lhs.to_float_vector();
    const std::vector<float> b = rhs.to_float_vector();
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-5));
  };
  check_close(got, want);
  check_close(mean, want_mean);
  check_close(var, want_var);
  CHECK_THROWS_WITH_AS(batch_norm_train(x, {}, {}, {}, {}, {.divisor = Tensor::ones({4})}),
                       doctest::Contains("batch_norm: divisor: expected"), ArgumentError);
}

TEST_CASE("gradients of batch_norm are the same in float32") {
  for (const Dims& sizes : {Dims{5, 17, 9, 7}, Dims{40, 16, 14, 14}, Dims{3, 700, 2, 3},
                            Dims{33, 6}, Dims{4, 3, 50}, Dims{2, 5, 3, 4, 6}}) {
    const Tensor x = leaf(sizes);
    const std::vector<Tensor> inputs{x, channel_leaf(x, 4), channel_leaf(x, 5)};
    for (const Order order : {Order::Contiguous, Order::ChannelsLast}) {
      check_float32([](Inputs in) { return batch_norm_train(in[0], {}, {}, in[1], in[2]); }, inputs,
                    order);
      check_float32(
          [](Inputs in) {
            const Tensor mean = Tensor::full({in[0].size(1)}, 0.25, in[0].dtype());
            const Tensor var = Tensor::full({in[0].size(1)}, 1.5, in[0].dtype());
            return batch_norm(in[0], mean, var, in[1], in[2]);
          },
          inputs, order);
    }
  }
}

TEST_CASE("gradients of batch_norm do not depend on the number of threads") {
  const Tensor x =
      leaf({16, 24, 20, 20}).detach().to(DType::Float32).contiguous(MemoryFormat::ChannelsLast);
  const Tensor gradient = leaf({16, 24, 20, 20}, 3).detach().to(DType::Float32);
  const auto run = [&](int threads) {
    const test::Threads guard(threads);
    const Tensor input = x.clone().set_requires_grad();
    batch_norm_train(input, {}, {}, {}, {}).backward(gradient);
    return input.grad();
  };
  CHECK(run(1).equal(run(2)));
}

TEST_CASE("batch_norm_train: running statistics move by momentum towards the batch") {
  const Tensor x = leaf({6, 2, 5}).detach();
  const Tensor running_mean = Tensor::full({2}, 1.0, DType::Float64);
  const Tensor running_var = Tensor::full({2}, 2.0, DType::Float64);
  batch_norm_train(x, running_mean, running_var, {}, {}, {.momentum = 0.3});
  const Tensor mean_now = mean(x, {0, 2});
  const Tensor var_now = var(x, {0, 2});
  for (std::int64_t c = 0; c < 2; ++c) {
    CHECK(running_mean[c].item() ==
          doctest::Approx(0.7 * 1.0 + 0.3 * mean_now[c].item()).epsilon(1e-12));
    CHECK(running_var[c].item() ==
          doctest::Approx(0.7 * 2.0 + 0.3 * var_now[c].item()).epsilon(1e-12));
  }
}

TEST_CASE("batch_norm_train: one value for a channel is refused and changes nothing") {
  const Tensor running_mean = Tensor::zeros({3});
  CHECK_THROWS_WITH_AS(batch_norm_train(Tensor::ones({1, 3}), running_mean, {}, {}, {}),
                       doctest::Contains("batch_norm: x: expected more than 1 value for each"),
                       ArgumentError);
  CHECK(running_mean.equal(Tensor::zeros({3})));
  CHECK_THROWS_WITH_AS(
      batch_norm_train(Tensor::ones({4, 3}), Tensor::zeros({2}), {}, {}, {}),
      doctest::Contains("batch_norm: running_mean: expected Float32 [3], got Float32 [2]"),
      ArgumentError);
}

TEST_CASE("gradients of layer_norm agree with finite differences") {
  const auto op = [](const Dims& shape) {
    return [shape](Inputs in) { return layer_norm(in[0], shape, in[1], in[2], 1e-3); };
  };
  check_gradients(op({5}), {leaf({4, 5}), leaf({5}, 2), leaf({5}, 3)});
  check_gradients(op({3, 4}), {leaf({2, 3, 4}), leaf({3, 4}, 2), leaf({3, 4}, 3)});
  check_gradients([](Inputs in) { return layer_norm(in[0], {4}, {}, {}); }, {leaf({2, 3, 4})});
  check_gradients(
      [](Inputs in) {
        return layer_norm(in[0], {3, 4}, {}, in[1]);
      },
      {leaf({2, 3, 4}), leaf({3, 4}, 3)});
  check_float32(op({33}), {leaf({50, 33}), leaf({33}, 2), leaf({33}, 3)});
}

TEST_CASE("group_norm: the gradient of huge tensors without elements is there at once") {
  const Tensor x =
      Tensor::zeros({std::int64_t{1} << 31U, 6, 0}, DType::Float64).set_requires_grad();
  const Tensor weight = leaf({6});
  const Tensor y = group_norm(x, 2, weight, {});
  y.backward(Tensor::zeros(y.sizes(), DType::Float64));
  CHECK(x.grad().sizes() == x.sizes());
  CHECK(weight.grad().equal(Tensor::zeros({6}, DType::Float64)));
}

TEST_CASE("gradients of group_norm and instance_norm agree with finite differences") {
  const Tensor x = leaf({2, 6, 3, 2});
  const std::vector<Tensor> inputs{x, channel_leaf(x, 2), channel_leaf(x, 3)};
  for (const std::int64_t groups : {1, 2, 3, 6}) {
    const auto op = [groups](Inputs in) { return group_norm(in[0], groups, in[1], in[2], 1e-3); };
    check_gradients(op, inputs);
    check_float32(op, inputs, Order::Contiguous);
    check_float32(op, inputs, Order::ChannelsLast);
  }
  check_gradients([](Inputs in) { return instance_norm(in[0], in[1], in[2], 1e-3); }, inputs);
  check_gradients([](Inputs in) { return instance_norm(in[0], {}, {}, 1e-3); }, {x});
  check_gradients([](Inputs in) { return group_norm(in[0], 2, {}, {}); }, {leaf({5, 6})});
}

TEST_CASE("batch_norm_train of parts: wrong arguments and single values are refused") {
  const SumOverParts alone = [](std::span<double>) {};
  const Tensor x = leaf({4, 3, 2}).detach();
  CHECK_THROWS_AS(batch_norm_train(x, {}, {}, {}, {}, {}, SumOverParts()), ArgumentError);
  CHECK_THROWS_AS(batch_norm_train(x, {}, {}, Tensor::ones({2}), {}, {}, alone), ArgumentError);
  CHECK_THROWS_AS(batch_norm_train(Tensor::ones({3}), {}, {}, {}, {}, {}, alone), ArgumentError);
  CHECK_THROWS_WITH_AS(batch_norm_train(Tensor::ones({1, 3}), {}, {}, {}, {}, {}, alone),
                       doctest::Contains("expected more than 1 value"), ArgumentError);
  CHECK(batch_norm_train(Tensor::ones({0, 3}), {}, {}, {}, {}, {}, alone).sizes() == Dims{0, 3});
  // With one part the bits are those of the plain function.
  CHECK(batch_norm_train(x, {}, {}, {}, {}, {}, alone).equal(batch_norm_train(x, {}, {}, {}, {})));
  for (const Dims& sizes : image_sizes()) {
    const Tensor y = leaf(sizes);
    check_gradients(
        [&](Inputs in) {
          return batch_norm_train(in[0], {}, {}, in[1], in[2],
                                  {.eps = 1e-3, .divisor = in[3], .shift = in[4]}, alone);
        },
        {y, channel_leaf(y, 2), channel_leaf(y, 3), channel_leaf(y, 4), channel_leaf(y, 5)});
  }
}

}  // namespace quanta
