#pragma once

#include <cstdint>

#include "quanta/ops/cat.h"     // IWYU pragma: export
#include "quanta/ops/matmul.h"  // IWYU pragma: export
#include "quanta/runtime/tensor.h"

/// Sums, products and quotients, with torch's broadcasting.
///
/// Functions on floats throw UnsupportedError for a quantized operand, with the advice to use
/// nn::FloatFunctional (it keeps the output's scale) or to dequantize, and for dtypes that they do
/// not list; all throw ArgumentError for sizes that do not broadcast and unequal dtypes. Many
/// threads may call them at once while nobody writes to the arguments.
namespace quanta {

// Float32 or Float64; all but div also take integers, which wrap around. See also div_trunc.
Tensor add(const Tensor& lhs, const Tensor& rhs);
Tensor sub(const Tensor& lhs, const Tensor& rhs);
Tensor mul(const Tensor& lhs, const Tensor& rhs);
Tensor div(const Tensor& lhs, const Tensor& rhs);
Tensor add_relu(const Tensor& lhs, const Tensor& rhs);
// Float32, Float64, Int32 or Int64.
Tensor add_scalar(const Tensor& x, double value);
Tensor mul_scalar(const Tensor& x, double value);
Tensor operator+(const Tensor& lhs, const Tensor& rhs);
Tensor operator-(const Tensor& lhs, const Tensor& rhs);
Tensor operator*(const Tensor& lhs, const Tensor& rhs);
Tensor operator/(const Tensor& lhs, const Tensor& rhs);

// A tensor and a number, which is taken as one of the tensor's dtype: dtypes and errors as in
// add_scalar and mul_scalar; number - x as in sub, quotients as in div.
Tensor operator+(const Tensor& x, double value);
Tensor operator+(double value, const Tensor& x);
Tensor operator-(const Tensor& x, double value);
Tensor operator-(double value, const Tensor& x);
Tensor operator*(const Tensor& x, double value);
Tensor operator*(double value, const Tensor& x);
Tensor operator/(const Tensor& x, double value);
Tensor operator/(double value, const Tensor& x);
/// neg(x) (ops/elementwise.h).
Tensor operator-(const Tensor& x);

// In place, as in torch: the elements of x change, for every handle and view of them. The sizes of
// x stay: `other` is broadcast to them. Throw ArgumentError, as all functions in place do, for an x
// whose changes the tape would have to know (x = x + other is recorded) or whose elements share
// memory or may not be written to; UnsupportedError for a quantized x.
const Tensor& operator+=(const Tensor& x, const Tensor& other);
const Tensor& operator-=(const Tensor& x, const Tensor& other);
const Tensor& operator*=(const Tensor& x, const Tensor& other);
const Tensor& operator/=(const Tensor& x, const Tensor& other);
const Tensor& operator+=(const Tensor& x, double value);
const Tensor& operator-=(const Tensor& x, double value);
const Tensor& operator*=(const Tensor& x, double value);
const Tensor& operator/=(const Tensor& x, double value);

namespace quantized {

/// Dequantize, add in float32, quantize: torch's quantized::add.
///
/// Both operands are quantized per tensor with one dtype (QUInt8, QInt8, QInt32); the result has
/// the given scale and zero point, the broadcast sizes and the first operand's memory order. Throws
/// ArgumentError for plain or per-channel operands, unequal dtypes, and output parameters that the
/// dtype cannot have.
QTensor add(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// The same with relu before the sum is quantized.
QTensor add_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// q = clamp(zp + round_half_even(float((a - za) * (b - zb)) * float(sa * sb / s))), with operands
/// and errors as in add.
QTensor mul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// The same with relu before the product is quantized.
QTensor mul_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);

// A tensor and a number: the codes stay where that is possible and the parameters move. These are
// torch's rules, which add round(value / scale) * scale rather than value.
QTensor add_scalar(const QTensor& x, double value);
QTensor add_scalar_relu(const QTensor& x, double value);
QTensor mul_scalar(const QTensor& x, double value);
QTensor mul_scalar_relu(const QTensor& x, double value);

}  // namespace quantized
}  // namespace quanta
