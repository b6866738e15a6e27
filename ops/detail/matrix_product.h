#pragma once

// Private: what products of matrices of any rank share, whatever their dtypes.

#include <cstdint>
#include <string_view>

#include "quanta/ops/cpu/gemm/codes_product.h"
#include "quanta/ops/detail/cuda_code_product.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// The sizes of a product as torch.matmul pairs matrices, all of one rank >= 2: a vector on the left
/// is a row, one on the right a column, and leading dimensions are 1 where an operand has none.
struct MatrixSizes {
  Dims left;    ///< [batch or 1 ..., M, K]
  Dims right;   ///< [batch or 1 ..., K, N]
  Dims result;  ///< [batch ..., M, N]
  Dims out;     ///< the same without the 1 that a vector stands for: torch's
};

/// What errors call the operands.
struct OperandNames {
  std::string_view left = "lhs";
  std::string_view right = "rhs";
};

/// Throws ArgumentError if the operands' sizes do not fit.
MatrixSizes matrix_sizes(std::string_view op, const Tensor& lhs, const Tensor& rhs,
                         OperandNames names = {});

/// The scale of the sums of two tensors that are quantized per tensor.
float scale_of_sums(const Tensor& lhs, const Tensor& rhs);

/// cpu::multiply_operands of two such tensors, QUInt8 or QInt8, with K > 0.
std::string_view multiply_activations(const Tensor& lhs, const Tensor& rhs,
                                      const MatrixSizes& sizes, const cpu::SumsReader& reader);

/// The same on a CUDA device, into a dense `out`.
void multiply_activations_on_cuda(const Tensor& lhs, const Tensor& rhs, const MatrixSizes& sizes,
                                  const ByteProductEnd& end, const Tensor& out);

}  // namespace quanta::detail
