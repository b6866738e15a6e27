// Losses of elements on their own; those over classes are in class_loss.cpp.

#include "quanta/ops/loss.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/loss/gradient.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

void check_operands(std::string_view op, const Tensor& input, const Tensor& target) {
  detail::check_floats(op, "input", input);
  QUANTA_CHECK(
      target.defined() && target.dtype() == input.dtype() && target.sizes() == input.sizes(),
      "{}: target: expected {} {} as input is, got {} {}", op, input.dtype(), input.sizes(),
      target.defined() ? to_string(target.dtype()) : "undefined",
      target.defined() ? target.sizes() : Dims{});
}

// A weight as wide as the input, without elements of its own; undefined stays.
Tensor expanded(std::string_view op, std::string_view name, const Tensor& weight,
                const Tensor& input) {
  if (!weight.defined()) return weight;
  QUANTA_CHECK(weight.dtype() == input.dtype() &&
                   broadcast_sizes(weight.sizes(), input.sizes(), op) == input.sizes(),
               "{}: {}: expected {} that broadcasts to {}, got {} {}", op, name, input.dtype(),
               input.sizes(), weight.dtype(), weight.sizes());
  autograd::require_no_grad(op, weight);
  return weight.expand(input.sizes()).contiguous();
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  if (replay::is_recording()) {
    return replay::call(
        "mse_loss", [=](const Tensor& a, const Tensor& b) { return mse_loss(a, b, reduction); },
        input, target);
  }
  OpScope scope("mse_loss");
  check_operands("mse_loss", input, target);
  return gradients::pointwise_loss("mse_loss", input, target, {}, reduction,
                                   gradients::SquaredError{});
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  if (replay::is_recording()) {
    return replay::call(
        "l1_loss", [=](const Tensor& a, const Tensor& b) { return l1_loss(a, b, reduction); },
        input, target);
  }
  OpScope scope("l1_loss");
  check_operands("l1_loss", input, target);
  return gradients::pointwise_loss("l1_loss", input, target, {}, reduction,
                                   gradients::AbsoluteError{});
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, double beta) {
  if (replay::is_recording()) {
    return replay::call(
        "smooth_l1_loss",
        [=](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b, reduction, beta); },
        input, target);
  }
  OpScope scope("smooth_l1_loss");
  QUANTA_CHECK(beta >= 0.0, "smooth_l1_loss: beta: expected a number >= 0, got {}", beta);
  check_operands("smooth_l1_loss", input, target);
  return gradients::pointwise_loss("smooth_l1_loss", input, target, {}, reduction,
                                   gradients::SmoothAbsoluteError{beta});
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryLossOptions& options) {
  constexpr std::string_view kOp = "binary_cross_entropy_with_logits";
  if (replay::is_recording()) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& pos_weight) {
          BinaryLossOptions given = options;
          given.weight = weight;
          given.pos_weight = pos_weight;
          return binary_cross_entropy_with_logits(a, b, given);
        },
        input, target, options.weight, options.pos_weight);
  }
  OpScope scope(kOp);
  check_operands(kOp, input, target);
  const gradients::LossWeights weights{expanded(kOp, "weight", options.weight, input),
                                       expanded(kOp, "pos_weight", options.pos_weight, input)};
  return gradients::pointwise_loss(kOp, input, target, weights, options.reduction,
                                   gradients::BinaryCrossEntropy{});
}

}  // namespace quanta
