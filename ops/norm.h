#pragma once

#include "quanta/runtime/tensor.h"

namespace quanta {

// Float32, eval mode. `weight` and `bias` (Float32 [C] or normalized shape) may be undefined: 1 and 0.

/// (x - mean) / sqrt(var + eps) * weight + bias, per channel; x [N, C] or [N, C, spatial...].
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5);
Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

namespace quantized {

// Per-tensor QUInt8 or QInt8 in, the given output parameters out.

/// Batch norm in eval mode over dimension 1 of a tensor of rank 2 to 5; all four tensors required.
QTensor batch_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& var, double eps, double scale, std::int64_t zero_point);
QTensor batch_norm_relu(const QTensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& mean, const Tensor& var, double eps, double scale,
                        std::int64_t zero_point);
QTensor layer_norm(const QTensor& x, const Dims& normalized_shape, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point);
QTensor group_norm(const QTensor& x, std::int64_t num_groups, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point);
QTensor instance_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, double eps,
                      double scale, std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
