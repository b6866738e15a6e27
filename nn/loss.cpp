#include "quanta/nn/loss.h"

#include "quanta/runtime/check.h"

namespace quanta::nn {

Tensor Loss::forward(const Tensor& input, const Tensor& target) const {
  const detail::PathScope scope(this);
  return run(input, target);
}

Tensor Loss::forward(const Tensor& /*input*/) const {
  throw UnsupportedError(with_module_path(
      fmt::format("{}: target: expected forward(input, target), got an input alone", type_name())));
}

Tensor MSELoss::run(const Tensor& input, const Tensor& target) const {
  return mse_loss(input, target, reduction_);
}

Tensor L1Loss::run(const Tensor& input, const Tensor& target) const {
  return l1_loss(input, target, reduction_);
}

SmoothL1Loss::SmoothL1Loss(Reduction reduction, double beta) : reduction_(reduction), beta_(beta) {
  QUANTA_CHECK(beta >= 0.0, "SmoothL1Loss: beta: expected a number >= 0, got {}", beta);
}

Tensor SmoothL1Loss::run(const Tensor& input, const Tensor& target) const {
  return smooth_l1_loss(input, target, reduction_, beta_);
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const BinaryLossOptions& options)
    : weight(options.weight), pos_weight(options.pos_weight), reduction_(options.reduction) {
  register_buffer("weight", weight);
  register_buffer("pos_weight", pos_weight);
}

Tensor BCEWithLogitsLoss::run(const Tensor& input, const Tensor& target) const {
  return binary_cross_entropy_with_logits(
      input, target, {.weight = weight, .pos_weight = pos_weight, .reduction = reduction_});
}

NLLLoss::NLLLoss(const ClassLossOptions& options) : weight(options.weight), options_(options) {
  QUANTA_CHECK(options.label_smoothing == 0.0,
               "NLLLoss: label_smoothing: expected 0 (CrossEntropyLoss has it), got {}",
               options.label_smoothing);
  register_buffer("weight", weight);
}

Tensor NLLLoss::run(const Tensor& input, const Tensor& target) const {
  ClassLossOptions options = options_;
  options.weight = weight;
  return nll_loss(input, target, options);
}

CrossEntropyLoss::CrossEntropyLoss(const ClassLossOptions& options)
    : weight(options.weight), options_(options) {
  QUANTA_CHECK(options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0,
               "CrossEntropyLoss: label_smoothing: expected 0..1, got {}", options.label_smoothing);
  register_buffer("weight", weight);
}

Tensor CrossEntropyLoss::run(const Tensor& input, const Tensor& target) const {
  ClassLossOptions options = options_;
  options.weight = weight;
  return cross_entropy(input, target, options);
}

}  // namespace quanta::nn
