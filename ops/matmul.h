#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quanta/runtime/tensor.h"

/// Products of matrices.
///
/// Many threads may call these functions at once while nobody writes to the arguments.
namespace quanta {

/// Matrix product with torch.matmul's rules for 1-d, 2-d and batched operands: a vector on the left
/// is a row, one on the right a column, and leading dimensions broadcast. Float32, Float64, or Int32 and
/// Int64, whose sums wrap around; on a CUDA device Float32, Float16 or BFloat16, summed in float and
/// rounded once.
///
/// Throws ArgumentError for sizes that do not fit or unequal dtypes, UnsupportedError for other
/// dtypes; for quantized operands it says to use nn::FloatFunctional or dequantize.
Tensor matmul(const Tensor& lhs, const Tensor& rhs);
/// The products of two batches of matrices, [B, M, K] and [B, K, N]: matmul without broadcasting.
/// Throws ArgumentError for other ranks or unequal batches.
Tensor bmm(const Tensor& lhs, const Tensor& rhs);

/// The determinants of square matrices [..., N, N], [...]; 1 where N is 0. Float32 or Float64,
/// eliminated in double. Same as torch.linalg.det. Throws ArgumentError for other sizes,
/// UnsupportedError for other dtypes.
Tensor det(const Tensor& x);
/// Einstein's sum: `equation` is "ij,jk->ik" as in torch.einsum and ONNX, letters for dimensions, one
/// list an operand. Letters that the result leaves out are summed; a letter that stands twice in one
/// list takes the diagonal; "..." stands for leading or other dimensions, which broadcast. Without
/// "->" the result has "..." and then the letters that occur once, in alphabetical order.
///
/// Operands are joined from left to right, each pair by one matmul. Float32, Float64, Int32 or
/// Int64; on a CUDA device also Float16 and BFloat16, where no letter of one operand alone is summed.
/// Has gradients, which are those of its pieces. Throws ArgumentError for an equation that is
/// not of this form or does not fit the operands, UnsupportedError for other dtypes.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);

namespace quantized {

/// What quantize makes of the product of the dequantized operands, with exact sums:
///
///   quantize(float(sum of (a - za) * (b - zb)) * (sa * sb))
///
/// torch adds up rounded products, so that its codes can be a unit away where the result lies
/// between two. Operands are quantized per tensor with one dtype, QUInt8 or QInt8. An inner
/// dimension of more than 33025, whose sums may not fit into 32 bits, goes through floats. Throws
/// ArgumentError as the float function does, and for parameters that the dtype cannot have.
QTensor matmul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);
/// The same for two batches of matrices, [B, M, K] and [B, K, N].
QTensor bmm(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
