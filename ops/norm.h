#pragma once

#include <functional>
#include <span>

#include "quanta/runtime/tensor.h"

/// Normalization by mean and variance, in float and int8.
///
/// Float tensors are Float32 or Float64. `weight` and `bias` have x's dtype and sizes [C] or the
/// normalized shape; undefined ones stand for 1 and 0. Strides may be any, and results have the
/// input's memory order. Statistics that are taken from the data are the mean and the biased
/// variance, summed in double.
///
/// All throw ArgumentError for wrong shapes, UnsupportedError for other dtypes. Many threads may
/// call them at once while nobody writes to the arguments; batch_norm_train writes to the running
/// statistics.
namespace quanta {

/// (x - mean) / sqrt(var + eps) * weight + bias, per channel; x [N, C] or [N, C, spatial...].
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);

struct BatchNormTrainOptions {
  double momentum = 0.1;
  double eps = 1e-5;
  /// x / divisor + shift is normalized in the place of x. Both are [C], or undefined: 1 and 0. That
  /// tensor is never calculated: the shift leaves with the mean, and the divisor only scales eps.
  /// So a layer whose weight was multiplied by factors that have to come out again
  /// (nn/qat/batch_norm.h) pays nothing for it, and small divisors lose no digits. Both are
  /// differentiable. A channel whose divisor is 0 gives `bias` and leaves its running statistics
  /// alone.
  Tensor divisor{};
  Tensor shift{};
};
/// The same with mean and variance of the batch, over all dimensions but 1. Each channel has to
/// have more than one value; a batch without any values changes nothing. Running statistics that
/// are defined move towards those of the batch, in place, the variance as the estimate without
/// bias:
///
///   running = (1 - momentum) * running + momentum * statistic
///
/// Same as torch's batch_norm with training=True.
Tensor batch_norm_train(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight, const Tensor& bias,
                        const BatchNormTrainOptions& options = {});

/// Sums these numbers, in place, over all parts that make up a batch: each part's holder calls it
/// with the part's own numbers, as many as the others.
using SumOverParts = std::function<void(std::span<double> numbers)>;
/// The same of one part of a batch, which may be empty, where others hold the other parts at the
/// same time: y is that of the part, the statistics and the gradient of x are those of the whole
/// batch, which has to have more than one value for each channel, or none. The gradients of weight,
/// bias and divisor are the part's share of them. `sum` is called once here, with 2 C + 1 numbers,
/// and once on the way back, with 2 C, where x needs a gradient; what it throws comes out. Tensors
/// on a device go through the host's memory.
Tensor batch_norm_train(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight, const Tensor& bias,
                        const BatchNormTrainOptions& options, const SumOverParts& sum);

/// (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which have the sizes
/// `normalized_shape`.
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);
/// The same over the channels of each of `num_groups` groups and all dimensions behind them.
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);
/// group_norm with one group a channel; x has at least 3 dimensions.
Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions, which have the sizes
/// `normalized_shape`; the squares are summed in double, and the result is contiguous. Same as
/// torch.nn.functional.rms_norm.
Tensor rms_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = {},
                double eps = 1e-5);

/// Mean and 1 / sqrt(var + eps) of each row.
struct RowStatistics {
  Tensor mean;
  Tensor inv_std;
};
/// The statistics by which layer_norm normalizes over the last `dims` dimensions (0: each element by
/// itself), of x's dtype; these dimensions stay, with size 1.
RowStatistics row_statistics(const Tensor& x, std::int64_t dims, double eps = 1e-5);

/// x / (sum of |x|^p)^(1/p) along `dim`, contiguous; zeros where that sum is 0. p > 0.
Tensor lp_normalize(const Tensor& x, std::int64_t dim = -1, double p = 2.0);

struct LocalResponseNormOptions {
  std::int64_t size = 5;  ///< channels that are looked at, at least 1
  double alpha = 1e-4;
  double beta = 0.75;
  double bias = 1.0;
};
/// x / (bias + alpha / size * sum of x^2)^beta, the sum over the channels (dimension 1) from
/// floor((size - 1) / 2) before to ceil((size - 1) / 2) behind; contiguous. That is ONNX's LRN;
/// torch's window lies the other way where the size is even.
Tensor local_response_norm(const Tensor& x, const LocalResponseNormOptions& options = {});

namespace quantized {

/// Batch norm in eval mode over dimension 1 of a tensor of rank 2 to 5. `x` is per-tensor QUInt8 or
/// QInt8, the result has its dtype and the given parameters, and all four float tensors are
/// required.
///
///   inv_sigma = 1 / sqrt(var + eps)
///   alpha = inv_sigma * weight * (scale_x / scale)
///   beta = (bias - mean * inv_sigma * weight) / scale
///   q = clamp(zero_point + round_half_even(alpha * (q_x - zero_point_x) + beta))
///
/// Ranks 4 and 5 come out channels-last as torch's do, the others contiguous.
QTensor batch_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& var, double eps, double scale, std::int64_t zero_point);
/// The same with relu at the end.
QTensor batch_norm_relu(const QTensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& mean, const Tensor& var, double eps, double scale,
                        std::int64_t zero_point);

// Layer, group and instance norm of per-tensor QUInt8 or QInt8 codes, into the same dtype with the
// given parameters. Mean and variance of the codes are exact integers:
//
//   q = quantize((q_x - mean(q_x)) * (scale_x / sqrt(var(q_x) * scale_x^2 + eps) * weight) + bias)
//
// `weight` and `bias` may be undefined. Ranks are those of the float functions, for group_norm 3 or
// more. Results are contiguous, but for group and instance norm of channels-last images.
QTensor layer_norm(const QTensor& x, const Dims& normalized_shape, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point);
QTensor group_norm(const QTensor& x, std::int64_t num_groups, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point);
QTensor instance_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, double eps,
                      double scale, std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
