#pragma once

#include <cstdint>

#include "quanta/ops/reduce.h"
#include "quanta/runtime/tensor.h"

/// Arithmetic on codes that torch has on floats only: what nn::quantized::QFunctional is made of
/// beside the functions of ops/arithmetic.h.
///
/// Operands are quantized per tensor (QUInt8, QInt8, QInt32), two of them with one dtype and sizes
/// that broadcast; scales may differ. The result has that dtype, the given scale and zero point,
/// and the first operand's memory order. All throw ArgumentError for plain or per-channel operands,
/// unequal dtypes, sizes that do not broadcast and parameters that the dtype cannot have. Many
/// threads may call them at once while nobody writes to the arguments.
namespace quanta::quantized {

/// lhs - rhs with the arithmetic of quantized::add: each operand becomes fma(q, scale, -scale * zp)
/// in float32, their difference a code.
QTensor sub(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);

// quantize(function(dequantize(lhs), dequantize(rhs))), bit by bit.

/// Where a divisor is zero, the code of an infinity (the end of the range) or of NaN (the highest
/// code; QInt32: the lowest), as quantize_per_tensor gives them.
QTensor div(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
QTensor minimum(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
QTensor maximum(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);

/// quantize(-dequantize(x)): codes of 8 bits are looked up in a table.
QTensor neg(const QTensor& x, double scale, std::int64_t zero_point);

/// quantize(mean(dequantize(x), dims)), bit by bit; no `dims` means all. Unlike mean() of codes,
/// which keeps the input's parameters and with them the rounding to the input's steps. Throws
/// ArgumentError for dimensions that `x` does not have.
QTensor mean(const QTensor& x, const Dims& dims, double scale, std::int64_t zero_point,
             const ReduceOptions& options = {});

}  // namespace quanta::quantized
