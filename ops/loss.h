#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// What a network is trained on. Same as in torch.nn.functional.
///
/// Losses take Float32 or Float64, are differentiable, and take their sums in double. They throw
/// ArgumentError for sizes and dtypes that do not fit together, UnsupportedError for other dtypes;
/// where torch broadcasts input and target with a warning, sizes that differ are refused. Many
/// threads may call them at once while nobody writes to the arguments.
///
/// On a CUDA device (Float32) losses and gradients are the CPU's to the last bit, but for what
/// log_softmax and the logarithms and exponentials of binary_cross_entropy_with_logits, which are
/// CUDA's there, may differ by. Losses over classes wait for the device, to refuse bad targets.
namespace quanta {

/// What becomes of the losses of single elements: None gives them all, Mean and Sum a 0-d tensor.
enum class Reduction : std::uint8_t { None, Mean, Sum };

/// (input - target)^2. Both sides may require a gradient here, in l1_loss, in smooth_l1_loss and in
/// binary_cross_entropy_with_logits.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);
/// |input - target|.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);
/// With d = |input - target|: d^2 / (2 beta) for d < beta, else d - beta / 2. Throws ArgumentError
/// for beta < 0.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      Reduction reduction = Reduction::Mean, double beta = 1.0);

struct BinaryLossOptions {
  Tensor weight{};      ///< factors of the elements' losses; broadcasts to input's sizes
  Tensor pos_weight{};  ///< factors of the positive answers' part; broadcasts as well
  Reduction reduction = Reduction::Mean;
};
/// -(pos_weight * target * log(s) + (1 - target) * log(1 - s)) * weight with s = sigmoid(input).
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryLossOptions& options = {});

struct ClassLossOptions {
  Tensor weight{};  ///< [C], one factor for each class
  /// Class indices of this value count for nothing.
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::Mean;
  /// Takes this share of each target and spreads it over all classes; cross_entropy only.
  double label_smoothing = 0.0;
};

/// -weight[t] * input[n, t, ...] for log-probabilities, input [N, C, spatial...] or [C], and class
/// indices t (Int64 or Int32), [N, spatial...] or a 0-d one. Mean divides by the sum of the weights
/// of the targets. Throws ArgumentError for a class outside of 0..C-1.
Tensor nll_loss(const Tensor& input, const Tensor& target, const ClassLossOptions& options = {});

/// nll_loss of log_softmax(input). Targets of input's sizes and dtype are probabilities: the loss
/// is then -sum over classes of weight * target * log_softmax(input), and Mean divides by N times
/// the spatial sizes.
Tensor cross_entropy(const Tensor& input, const Tensor& target,
                     const ClassLossOptions& options = {});

}  // namespace quanta
