#pragma once

// Private: products of a few rows of codes with a weight as it lies in memory, row after row. With
// one row the weight is read once, in order: its bytes are all that counts. Exact on every
// instruction set.

#include <cstdint>

#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// Rows of codes start at multiples of this and are filled up with zeros to one.
inline constexpr std::int64_t kCodeRowAlignment = 64;

/// How large codes can be.
enum class CodeBits : std::uint8_t {
  Eight,
  Seven,  ///< up to 128: with reduced range, ties can round to 2^7 itself
};

struct GemvInt8 {
  const std::uint8_t* src;  ///< row r at r * src_stride, aligned and filled up as said
  std::int64_t rows;
  std::int64_t src_stride;
  CodeBits code_bits;
  const std::int8_t* weight;  ///< [N, K], or panels
  std::int64_t out_features, in_features;
  bool vnni;  ///< onednn::has_exact_u8s8()
};

/// sums[r * N + n] = sum of src[r][k] * weight[n][k], for n in [begin, end). int32 sums wrap.
void gemv_int8(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums);

/// Channels of a panel, and how many k lie together: the code of (n, k) of a weight in panels is at
/// [n / 16][k / 4][n % 16][k % 4], with zeros where N and K end. No sum over lanes is left to do,
/// which with a short K takes longer than the products.
inline constexpr std::int64_t kPanelChannels = 16;
inline constexpr std::int64_t kPanelDepth = 4;
/// A weight [N, K] as Int8 [panels, K / 4, 16, 4].
Tensor int8_panels(const std::int8_t* weight, std::int64_t out_features, std::int64_t in_features);
/// gemv_int8 for the panels [begin, end). Rows of codes need no alignment and are filled up with
/// zeros to kPanelDepth.
void gemv_int8_panels(const GemvInt8& call, std::int64_t begin, std::int64_t end,
                      std::int32_t* sums);

}  // namespace quanta::cpu
