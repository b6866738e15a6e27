#pragma once

// Private: products of two activations in 8-bit codes, whose operands are packed for one call. Exact
// sums on every instruction set.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quanta/ops/cpu/gemm/panels.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cpu {

/// Rows and panels are filled up with zeros to a multiple of this.
inline constexpr std::int64_t kPackedDepth = 64;
/// From so many rows on they are readable, and sums writable, up to the next multiple of it.
inline constexpr std::int64_t kPackedRows = 16;
/// The longest inner dimension for which no sum of products of codes, each less a zero point of its
/// own range, leaves 32 bits.
inline constexpr std::int64_t kMaxExactDepth = 2147483647 / (255 * 255);

constexpr std::int64_t packed_depth(std::int64_t depth) { return round_up(depth, kPackedDepth); }
/// Panels of 16 columns, in pairs.
constexpr std::int64_t packed_panels(std::int64_t columns) {
  return round_up(columns, 2 * kPanelChannels) / kPanelChannels;
}

struct PackedProduct {
  const std::uint8_t* rows;  ///< row r at r * packed_depth(depth), aligned to 64 bytes
  std::int64_t row_count;
  const std::int8_t* panels;  ///< code (k, n) at n / 16 * 16 * packed_depth(depth) + panel_index
  std::int64_t panel_count;   ///< even
  std::int64_t depth;
};

/// sums[r * panel_count * 16 + n] = sum of row r times column n. Sums wrap.
void multiply_codes(const PackedProduct& call, std::int32_t* sums);
/// The kernel's name.
std::string_view multiply_codes_name(std::int64_t rows);

/// A matrix [depth, columns] of bytes with any strides.
struct CodeMatrix {
  const std::uint8_t* codes;
  std::int64_t depth, columns;
  std::int64_t row_stride, column_stride;
};

/// Panels [begin, begin + count) of the matrix. `flip` is 0 for signed codes, 128 for unsigned ones,
/// which become signed with 128 less.
void pack_columns(const CodeMatrix& matrix, std::uint8_t flip, std::int64_t begin,
                  std::int64_t count, std::int8_t* panels);
/// `count` rows of `depth` bytes, `stride` apart, to packed ones; `flip` is 0 for unsigned codes, 128
/// for signed ones, which become unsigned with 128 more. Gives the sum of each packed row.
void pack_rows(const std::uint8_t* src, std::int64_t stride, std::int64_t count, std::int64_t depth,
               std::uint8_t flip, std::uint8_t* rows, std::int32_t* sums);

/// codes[i] = quantize(float(sums[i] + column_terms[i] + row_term) * scale).
struct SumsToCodes {
  float scale;
  float inv_scale;
  std::int32_t zero_point, min, max;
};
void sums_row_to_codes(const SumsToCodes& args, const std::int32_t* sums,
                       const std::int32_t* column_terms, std::int32_t row_term, std::int64_t count,
                       std::uint8_t* codes);
/// floats[i] = float(sums[i] + column_terms[i] + row_term) * scale.
void sums_row_to_floats(float scale, const std::int32_t* sums, const std::int32_t* column_terms,
                        std::int32_t row_term, std::int64_t count, float* floats);
/// dst[i] = sums[i] + column_terms[i] + row_term, which wraps; dst may be `sums`.
void add_terms(const std::int32_t* sums, const std::int32_t* column_terms, std::int32_t row_term,
               std::int64_t count, std::int32_t* dst);

}  // namespace quanta::cpu
