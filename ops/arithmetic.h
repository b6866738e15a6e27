#pragma once

#include <cstdint>

#include "quanta/ops/cat.h"     // IWYU pragma: export
#include "quanta/ops/matmul.h"  // IWYU pragma: export
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

}  // namespace quantized
}  // namespace quanta
