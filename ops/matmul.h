#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Products of matrices.
///
/// Many threads may call these functions at once while nobody writes to the arguments.
namespace quanta {

/// Matrix product with torch.matmul's rules for 1-d, 2-d and batched operands: a vector on the left
/// is a row, one on the right a column, and leading dimensions broadcast. Float32 or Float64.
///
/// Throws ArgumentError for sizes that do not fit or unequal dtypes, UnsupportedError for other
/// dtypes; for quantized operands it says to use nn::FloatFunctional or dequantize.
Tensor matmul(const Tensor& lhs, const Tensor& rhs);
/// The products of two batches of matrices, [B, M, K] and [B, K, N]: matmul without broadcasting.
/// Throws ArgumentError for other ranks or unequal batches.
Tensor bmm(const Tensor& lhs, const Tensor& rhs);

namespace quantized {

/// Dequantize, matrix product in float32, quantize into the given parameters. Operands are
/// quantized per tensor with one dtype, QUInt8 or QInt8. Throws ArgumentError as the float function
/// does, and for parameters that the dtype cannot have.
QTensor matmul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// The same for two batches of matrices, [B, M, K] and [B, K, N].
QTensor bmm(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
