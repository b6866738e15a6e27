#include <cmath>
#include <limits>
#include <vector>

#include "gradients_support.h"
#include "quanta/nn/loss.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradients;
using test::Inputs;
using test::leaf;

constexpr std::array kReductions{Reduction::None, Reduction::Mean, Reduction::Sum};

Tensor classes(std::initializer_list<std::int64_t> values, const Dims& sizes) {
  return Tensor::from_int64({values.begin(), values.size()}).view(sizes);
}

// The loss of one row, written out.
double row_loss(const Tensor& scores, std::int64_t target) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < scores.numel(); ++c) sum += std::exp(scores[c].item());
  return std::log(sum) - scores[target].item();
}

}  // namespace

TEST_CASE("gradients of losses of elements agree with finite differences on both sides") {
  for (const Reduction reduction : kReductions) {
    const std::vector<test::Op> ops{
        [=](Inputs in) { return mse_loss(in[0], in[1], reduction); },
        [=](Inputs in) { return l1_loss(in[0], in[1], reduction); },
        [=](Inputs in) { return smooth_l1_loss(in[0], in[1], reduction, 0.7); },
        [=](Inputs in) { return smooth_l1_loss(in[0], in[1], reduction, 0.0); },
        [=](Inputs in) {
          return binary_cross_entropy_with_logits(in[0], in[1], {.reduction = reduction});
        },
        [=](Inputs in) {
          return binary_cross_entropy_with_logits(
              in[0], in[1],
              {.weight = Tensor::full({4}, 0.3, in[0].dtype()),
               .pos_weight = Tensor::full({3, 1}, 2.5, in[0].dtype()),
               .reduction = reduction});
        }};
    for (const test::Op& op : ops) {
      check_gradients(op, {leaf({3, 4}, 1), leaf({3, 4}, 2, 0.0, 1.0)});
      check_gradients(op, {leaf({3, 4}, 1), leaf({3, 4}, 2, 0.0, 1.0).detach()});
      check_float32(op, {leaf({3, 4}, 1), leaf({3, 4}, 2, 0.0, 1.0)});
    }
  }
}

TEST_CASE("gradients of losses over classes agree with finite differences") {
  const Tensor weight = leaf({4}, 5, 0.5, 2.0).detach();
  for (const Reduction reduction : kReductions) {
    for (const double smoothing : {0.0, 0.2}) {
      for (const Tensor& weights : {Tensor(), weight}) {
        const ClassLossOptions options{weights, 2, reduction, smoothing};
        const auto check = [&](const Tensor& input, const Tensor& target) {
          check_gradients([&](Inputs in) { return cross_entropy(in[0], target, options); },
                          {input});
          if (smoothing != 0.0) return;
          check_gradients([&](Inputs in) { return nll_loss(in[0], target, options); }, {input});
        };
        check(leaf({5, 4}), classes({0, 2, 3, 1, 1}, {5}));
        check(leaf({2, 4, 3}), classes({0, 2, 3, 1, 1, 3}, {2, 3}));
        check(leaf({2, 4, 2, 2}), classes({0, 1, 2, 3, 2, 1, 0, 3}, {2, 2, 2}));
        check(leaf({4}), classes({1}, {}));
        // Probabilities, which may want a gradient as well.
        check_gradients([&](Inputs in) { return cross_entropy(in[0], in[1], options); },
                        {leaf({3, 4}), leaf({3, 4}, 7, 0.0, 1.0)});
        check_gradients([&](Inputs in) { return cross_entropy(in[0], in[1], options); },
                        {leaf({2, 4, 3}), leaf({2, 4, 3}, 7, 0.0, 1.0)});
      }
    }
  }
}

TEST_CASE("gradients of cross_entropy are the same in float32") {
  std::vector<std::int64_t> targets(64);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = static_cast<std::int64_t>(i * 7 % 10);
  }
  const Tensor target = Tensor::from_int64(targets);
  check_float32([&](Inputs in) { return cross_entropy(in[0], target); }, {leaf({64, 10})});
  check_float32([&](Inputs in) { return cross_entropy(in[0], target, {.label_smoothing = 0.1}); },
                {leaf({64, 1000}, 1, -20.0, 20.0)});
}

TEST_CASE("cross_entropy: the mean is the weighted one of rows that are not ignored") {
  const Tensor scores = leaf({4, 3}).detach();
  const Tensor weight = leaf({3}, 3, 0.5, 2.0).detach();
  const Tensor target = classes({2, -100, 0, 2}, {4});
  double sum = 0.0;
  double divisor = 0.0;
  for (const std::int64_t row : {0, 2, 3}) {
    const auto t = static_cast<std::int64_t>(target[row].item());
    sum += weight[t].item() * row_loss(scores[row], t);
    divisor += weight[t].item();
  }
  CHECK(cross_entropy(scores, target, {.weight = weight}).item() ==
        doctest::Approx(sum / divisor).epsilon(1e-12));
  const Tensor each =
      cross_entropy(scores, target, {.weight = weight, .reduction = Reduction::None});
  CHECK(each[1].item() == 0.0);
  CHECK(cross_entropy(scores, target, {.weight = weight, .reduction = Reduction::Sum}).item() ==
        doctest::Approx(sum).epsilon(1e-12));
  CHECK(nll_loss(log_softmax(scores, 1), target, {.weight = weight}).item() ==
        doctest::Approx(sum / divisor).epsilon(1e-12));
}

TEST_CASE("cross_entropy: one class as a probability is the class itself") {
  const Tensor scores = leaf({2, 3}).detach();
  const Tensor shares = Tensor::zeros({2, 3}, DType::Float64);
  shares[0][2].fill_(1.0);
  shares[1][1].fill_(1.0);
  CHECK(cross_entropy(scores, shares).item() ==
        doctest::Approx(cross_entropy(scores, classes({2, 1}, {2})).item()).epsilon(1e-14));
}

TEST_CASE("cross_entropy: large scores do not overflow") {
  const Tensor scores = Tensor::from_values({1000.0F, -1000.0F, 0.0F}, {1, 3});
  scores.set_requires_grad();
  const Tensor loss = cross_entropy(scores, classes({1}, {1}));
  CHECK(loss.item() == 2000.0);
  loss.backward();
  CHECK(scores.grad().to_float_vector() == std::vector<float>{1.0F, -1.0F, 0.0F});
}

TEST_CASE("cross_entropy: nothing but ignored rows has a mean of NaN as in torch") {
  CHECK(std::isnan(cross_entropy(Tensor::ones({1, 3}), classes({-100}, {1})).item()));
}

TEST_CASE("binary_cross_entropy_with_logits: large scores do not overflow") {
  const Tensor x = Tensor::from_values({200.0F, -200.0F});
  const Tensor loss = binary_cross_entropy_with_logits(x, Tensor::from_values({0.0F, 1.0F}),
                                                       {.reduction = Reduction::None});
  CHECK(loss.to_float_vector() == std::vector<float>{200.0F, 200.0F});
}

TEST_CASE("losses: what does not fit is refused by name") {
  const Tensor x = Tensor::ones({2, 3});
  CHECK_THROWS_WITH_AS(mse_loss(x, Tensor::ones({3})),
                       doctest::Contains("mse_loss: target: expected Float32 [2, 3] as input is"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(l1_loss(Tensor::ones({2}, DType::Int32), x),
                       doctest::Contains("l1_loss: input: expected Float32 or Float64"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(smooth_l1_loss(x, x, Reduction::Mean, -1.0),
                       doctest::Contains("smooth_l1_loss: beta: expected a number >= 0"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(
      cross_entropy(x, classes({0, 3}, {2})),
      doctest::Contains("cross_entropy: target: expected classes in 0..2 or ignore_index -100"),
      ArgumentError);
  CHECK_THROWS_WITH_AS(cross_entropy(x, classes({0}, {1})),
                       doctest::Contains("cross_entropy: target: expected [2] for input [2, 3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(cross_entropy(x, classes({0, 1}, {2}), {.weight = Tensor::ones({2})}),
                       doctest::Contains("cross_entropy: weight: expected Float32 [3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(cross_entropy(x, x, {.label_smoothing = 1.5}),
                       doctest::Contains("label_smoothing: expected 0..1"), ArgumentError);
  CHECK_THROWS_WITH_AS(nll_loss(x, classes({0, 1}, {2}), {.label_smoothing = 0.1}),
                       doctest::Contains("nll_loss: label_smoothing"), ArgumentError);
  CHECK_THROWS_WITH_AS(binary_cross_entropy_with_logits(x, x, {.pos_weight = Tensor::ones({2})}),
                       doctest::Contains("binary_cross_entropy_with_logits: "), ArgumentError);
}

TEST_CASE("loss modules: an input without a target is refused") {
  const nn::MSELoss loss;
  const nn::Module& module = loss;
  CHECK_THROWS_WITH_AS(module.forward(Tensor::ones({2})),
                       doctest::Contains("MSELoss: target: expected forward(input, target)"),
                       UnsupportedError);
  CHECK(loss(Tensor::ones({2}), Tensor::zeros({2})).item() == 1.0);
}

}  // namespace quanta
