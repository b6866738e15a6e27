#pragma once

// Private: what convolutions whose sums become codes by gemm_codes.h are called with.

#include <cstdint>

#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cpu/gemm/gemm_codes.h"

namespace quanta::cpu {

struct ConvCodesCall {
  const std::uint8_t* src;
  std::int32_t src_zero_point;
  const ConvShape& shape;
  const CodePanels& weight;  ///< packed for the kernel that is called
  const PanelRequantize& requantize;
  std::uint8_t* dst;
  const CodeTable* table = nullptr;  ///< as of GemmCodes
  CodeAddend addend{};

  /// The product of `rows` that gives output lines from `line` on, counted over all images and
  /// depths.
  GemmCodes product(const CodeRows& rows, std::int64_t line, MemoryAhead& ahead) const {
    GemmCodes result{rows, weight, requantize, dst, table, addend, &ahead};
    skip_results(result, line * shape.out[2]);
    return result;
  }
};

/// At least so many bytes.
inline void grow_bytes(AlignedVector<std::uint8_t>& memory, std::int64_t bytes) {
  if (static_cast<std::int64_t>(memory.size()) < bytes) {
    memory.resize(static_cast<std::size_t>(bytes));
  }
}

}  // namespace quanta::cpu
