#pragma once

// Private: products of a few rows of codes with a weight as it lies in memory, row after row. With
// one row the weight is read once, in order: its bytes are all that counts. Exact on every
// instruction set.

#include <cstdint>

namespace quanta::cpu {

/// Rows of codes start at multiples of this and are filled up with zeros to one.
inline constexpr std::int64_t kCodeRowAlignment = 64;

/// How large codes can be.
enum class CodeBits : std::uint8_t {
  Eight,
  Seven,  ///< up to 128: with reduced range, ties can round to 2^7 itself
};

struct GemvInt8 {
  const std::uint8_t* src;  ///< row r at r * src_stride, aligned and filled up as said above
  std::int64_t rows;
  std::int64_t src_stride;
  CodeBits code_bits;
  const std::int8_t* weight;  ///< [N, K]
  std::int64_t out_features, in_features;
  bool vnni;  ///< onednn::has_exact_u8s8()
};

/// sums[r * N + n] = sum of src[r][k] * weight[n][k], for n in [begin, end). int32 sums wrap.
void gemv_int8(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums);

}  // namespace quanta::cpu
