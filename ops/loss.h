#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

namespace quanta {

// What a network is trained on; Float32 or Float64, differentiable, sums taken in double. Same as
// in torch.nn.functional. Throw ArgumentError for sizes and dtypes that do not fit,
// UnsupportedError for dtypes. Where torch broadcasts input and target with a warning sizes that
// differ are refused.

/// None: the loss of each element; Mean and Sum give a 0-d tensor.
enum class Reduction : std::uint8_t { None, Mean, Sum };

/// (input - target)^2. Both sides may require a gradient, as in all of the next four.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);
/// |input - target|.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);
/// With d = |input - target|: d^2 / (2 beta) for d < beta, else d - beta / 2. Throws ArgumentError
/// for beta < 0.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      Reduction reduction = Reduction::Mean, double beta = 1.0);

struct BinaryLossOptions {
  Tensor weight{};      ///< of each element's loss; broadcasts to input's sizes
  Tensor pos_weight{};  ///< of the positive answers' part; broadcasts so as well
  Reduction reduction = Reduction::Mean;
};
/// -(pos_weight * target * log(s) + (1 - target) * log(1 - s)) * weight with s = sigmoid(input).
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryLossOptions& options = {});

struct ClassLossOptions {
  Tensor weight{};  ///< [C], of each class
  /// Targets that count for nothing; class indices only.
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::Mean;
  /// Takes this share of each target and spreads it over all classes; cross_entropy only.
  double label_smoothing = 0.0;
};

/// -weight[t] * input[n, t, ...] for log-probabilities, input [N, C, spatial...] or [C], and class
/// indices t (Int64 or Int32), [N, spatial...] or a 0-d one. Mean divides by the sum of the weights
/// of the targets. Throws ArgumentError for a class outside of 0..C-1.
Tensor nll_loss(const Tensor& input, const Tensor& target, const ClassLossOptions& options = {});

/// The same for scores that log_softmax was not applied to; or, with targets of input's sizes and
/// dtype, that are probabilities, -sum over classes of weight * target * log_softmax(input), where
/// Mean divides by N times the spatial sizes.
Tensor cross_entropy(const Tensor& input, const Tensor& target,
                     const ClassLossOptions& options = {});

}  // namespace quanta
