#pragma once

#include "quanta/runtime/tensor.h"

namespace quanta {

// Float32 or Float64. `weight` and `bias` (of x's dtype, [C] or normalized shape) may be undefined:
// 1 and 0. Any strides; results have the input's memory order. Statistics are those of the data
// (biased variance), summed in double. Throws ArgumentError for wrong shapes, UnsupportedError for
// dtypes.

/// (x - mean) / sqrt(var + eps) * weight + bias, per channel; x [N, C] or [N, C, spatial...].
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);

struct BatchNormTrainOptions {
  double momentum = 0.1;
  double eps = 1e-5;
  /// [C], or undefined (1 and 0): what is normalized is x / divisor + shift, which is never made:
  /// the shift leaves with the mean, and the divisor only scales eps. So a layer whose weight was
  /// multiplied by factors that have to come out again (nn/qat/batch_norm.h) pays nothing for it,
  /// and small divisors lose no digits. Both are differentiable. A channel whose divisor is 0 gives
  /// `bias` and leaves its running statistics alone.
  Tensor divisor{};
  Tensor shift{};
};
/// The same with mean and variance of the batch, over all but dimension 1, which has to have more
/// than one value for each channel (or none, which changes nothing). Running statistics that are
/// defined move towards them, in place, the variance as the estimate without bias:
///
///   running = (1 - momentum) * running + momentum * statistic
///
/// torch's batch_norm with training=True.
Tensor batch_norm_train(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight, const Tensor& bias,
                        const BatchNormTrainOptions& options = {});

/// Over the last normalized_shape.size() dimensions, which have these sizes.
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);
/// Over the channels of each of `num_groups` groups and everything behind them.
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);
/// group_norm with one group a channel; x has at least 3 dimensions.
Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

namespace quantized {

// Per-tensor QUInt8 or QInt8 in, the given output parameters out (the same dtype).

/// Batch norm in eval mode over dimension 1 of a tensor of rank 2 to 5; all four tensors required.
///
///   inv_sigma = 1 / sqrt(var + eps)
///   alpha = inv_sigma * weight * (scale_x / scale)
///   beta = (bias - mean * inv_sigma * weight) / scale
///   q = clamp(zero_point + round_half_even(alpha * (q_x - zero_point_x) + beta))
///
/// Ranks 4 and 5 come out channels-last as torch's do, the others in the input's order.
QTensor batch_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& var, double eps, double scale, std::int64_t zero_point);
QTensor batch_norm_relu(const QTensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& mean, const Tensor& var, double eps, double scale,
                        std::int64_t zero_point);

/// Layer, group and instance norm take mean and variance of the codes as exact integers:
///
///   q = quantize((q_x - mean(q_x)) * (scale_x / sqrt(var(q_x) * scale_x^2 + eps) * weight) + bias)
///
/// `weight` and `bias` may be undefined. Ranks as for float, group_norm from 3 on.
QTensor layer_norm(const QTensor& x, const Dims& normalized_shape, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point);
QTensor group_norm(const QTensor& x, std::int64_t num_groups, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point);
QTensor instance_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, double eps,
                      double scale, std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
