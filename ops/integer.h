#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Products of plain 8-bit integers with zero points, exact in Int32, as ONNX has them.
///
/// All throw ArgumentError for dtypes and sizes that do not fit. Sums beyond 32 bits wrap. Many
/// threads may call them at once while nobody writes to the arguments.
namespace quanta {

/// ONNX's MatMulInteger: (a - a_zero_point) times (b - b_zero_point), with matmul's rules for
/// sizes. `a` and `b` are UInt8 or Int8, each for itself. A zero point has the dtype of its
/// operand, or is undefined (0): one for all, one for each row of `a` or one for each column of
/// `b`.
Tensor matmul_integer(const Tensor& a, const Tensor& b, const Tensor& a_zero_point = {},
                      const Tensor& b_zero_point = {});

/// Settings of conv_integer: a number for each spatial dimension, or one for all.
struct ConvIntegerOptions {
  Dims stride{1};
  Dims dilation{1};
  /// What is put before and behind each spatial dimension: all begins, then all ends. Empty: none.
  Dims pads{};
  std::int64_t groups = 1;
};
/// ONNX's ConvInteger: the convolution of `x` [N, C, spatial...] with `weight`
/// [O, C/groups, kernel...], UInt8 or Int8 each for itself. Padding counts as zero, so that it has
/// the code of x_zero_point. Zero points as above: one for x; one, or one for each output channel,
/// for the weight. The result is channels-last.
Tensor conv_integer(const Tensor& x, const Tensor& weight, const Tensor& x_zero_point = {},
                    const Tensor& weight_zero_point = {}, const ConvIntegerOptions& options = {});

namespace quantized {

/// The product of two activations, QUInt8 per tensor, with exact sums and matmul's rules for sizes:
///
///   q = clamp(zero_point + round_half_even(float(sum) * (sa * sb / scale)))
QTensor matmul_exact(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// The same as Float32: float(sum) * (sa * sb).
Tensor matmul_to_float(const QTensor& lhs, const QTensor& rhs);

}  // namespace quantized
}  // namespace quanta
