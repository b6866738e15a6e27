#pragma once

// Private: the product of two matrices of 8-bit codes that are not known before the call.

#include <cstdint>
#include <functional>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// Matrices of codes, with any strides, all with one zero point.
struct CodesOperand {
  /// `codes` of UInt8, Int8, QUInt8 or QInt8.
  static CodesOperand of(const Tensor& codes, std::int64_t zero_point);

  Tensor codes;  ///< a byte each; batch dimensions of size 1 are broadcast
  bool is_signed;
  std::int32_t zero_point;
};

/// A part of a row of the product. Its sums are sums[i] + column_terms[i] + row_term, which wraps.
struct RowOfSums {
  std::int32_t* sums;  ///< the reader may write here
  const std::int32_t* column_terms;
  std::int32_t row_term;
  std::int64_t count;
  std::int64_t at;  ///< the place of its first element in a dense result
};
/// Called for all parts, by several threads at once.
using SumsReader = std::function<void(const RowOfSums&)>;

/// The sums of (a - za) * (b - zb), exact where they fit into 32 bits, for batches of products
/// [..., M, K] times [..., K, N] of one rank >= 2; `result` are the sizes [..., M, N], none of them 0.
/// Returns the kernel's name.
std::string_view multiply_operands(const CodesOperand& lhs, const CodesOperand& rhs,
                                   const Dims& result, const SumsReader& reader);

}  // namespace quanta::cpu
