#pragma once

// Private: products of a few rows of codes with a weight as it lies in memory, row after row, or in
// panels. With one row the weight is read once, in order: its bytes are all that counts. Exact on
// every instruction set.

#include <cstdint>

#include "quanta/ops/cpu/gemm/panels.h"

namespace quanta::cpu {

/// Rows of codes start at multiples of this and are filled up with zeros to one.
inline constexpr std::int64_t kCodeRowAlignment = 64;

struct GemvInt8 {
  const std::uint8_t* src;  ///< row r at r * src_stride, aligned and filled up as said
  std::int64_t rows;
  std::int64_t src_stride;
  CodeBits code_bits;
  const std::int8_t* weight;  ///< [N, K]
  std::int64_t out_features, in_features;
};

/// sums[r * N + n] = sum of src[r][k] * weight[n][k], for n in [begin, end). int32 sums wrap.
void gemv_int8(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums);

struct PanelProduct {
  const std::uint8_t* src;  ///< row r at r * src_stride, filled up with zeros to kPanelDepth
  std::int64_t rows;
  std::int64_t src_stride;
  CodeBits code_bits;
  const CodePanels* weight;
};

/// The same for the channels of the panels [begin, end).
void gemv_int8_panels(const PanelProduct& call, std::int64_t begin, std::int64_t end,
                      std::int32_t* sums);

}  // namespace quanta::cpu
