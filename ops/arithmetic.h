#pragma once

#include <optional>
#include <span>

#include "quanta/runtime/tensor.h"

namespace quanta {

// Float tensors (Float32, Float64; all but div also Int32 and Int64), with torch's broadcasting.
// A quantized operand is refused with UnsupportedError, whose text says to use
// nn::FloatFunctional (it keeps the output's scale) or dequantize.
Tensor add(const Tensor& lhs, const Tensor& rhs);
Tensor sub(const Tensor& lhs, const Tensor& rhs);
Tensor mul(const Tensor& lhs, const Tensor& rhs);
Tensor div(const Tensor& lhs, const Tensor& rhs);
Tensor add_scalar(const Tensor& x, double value);
Tensor mul_scalar(const Tensor& x, double value);
Tensor add_relu(const Tensor& lhs, const Tensor& rhs);
Tensor operator+(const Tensor& lhs, const Tensor& rhs);
Tensor operator-(const Tensor& lhs, const Tensor& rhs);
Tensor operator*(const Tensor& lhs, const Tensor& rhs);
Tensor operator/(const Tensor& lhs, const Tensor& rhs);

/// Joins along `dim`: all of the same dtype, and of the same sizes but along `dim` (1-d empty
/// tensors are skipped). Quantized tensors: the result has the first one's parameters, the others
/// are requantized. Same as torch.cat.
Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0);

/// Matrix product with torch.matmul's rules for 1-d, 2-d and batched float operands.
Tensor matmul(const Tensor& lhs, const Tensor& rhs);
/// The products of two batches of matrices, [B, M, K] and [B, K, N]: matmul without broadcasting.
/// Throws ArgumentError for other ranks or unequal batches.
Tensor bmm(const Tensor& lhs, const Tensor& rhs);

namespace quantized {

// Both operands per-tensor quantized with one dtype (QUInt8, QInt8, QInt32); the result has the
// given scale and zero point, torch's broadcast shape and the first operand's memory order.
// Errors: ArgumentError for plain or per-channel operands, unequal dtypes, bad output parameters.

/// dequantize, add in float32, quantize: torch's quantized::add.
QTensor add(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
QTensor add_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// q = clamp(zp + round_half_even(float((a - za) * (b - zb)) * float(sa * sb / s))).
QTensor mul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
QTensor mul_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);

// With a number: the codes stay where possible and the parameters move (torch's rules, which add
// round(value / scale) * scale rather than value).
QTensor add_scalar(const QTensor& x, double value);
QTensor add_scalar_relu(const QTensor& x, double value);
QTensor mul_scalar(const QTensor& x, double value);
QTensor mul_scalar_relu(const QTensor& x, double value);

/// Joins along `dim` into the given parameters (default: those of the first tensor).
QTensor cat(std::span<const QTensor> tensors, std::int64_t dim, std::optional<double> scale = {},
            std::optional<std::int64_t> zero_point = {});
QTensor cat_relu(std::span<const QTensor> tensors, std::int64_t dim,
                 std::optional<double> scale = {}, std::optional<std::int64_t> zero_point = {});

/// Dequantize, matrix product in float32, quantize. 8-bit per-tensor operands.
QTensor matmul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// The same of two batches of matrices, [B, M, K] and [B, K, N].
QTensor bmm(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
