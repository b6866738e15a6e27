#pragma once

// Private: products of many rows of codes with a weight in panels (gemv_int8.h) that become floats
// block by block, while their sums are in the L1 cache. Exact sums on every instruction set.

#include <cstdint>
#include <string_view>

#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/cpu/gemm/sums_to_floats.h"

namespace quanta::cpu {

/// So many rows of codes have to be readable, whatever is in the last of them: the next multiple.
inline constexpr std::int64_t kGemmRowAlignment = 16;

/// The last step on each float.
enum class GemmEnd : std::uint8_t { None, ReLU, Gelu };

/// y = end(float of the sum, see SumsToFloats) + addend.
struct GemmOutput {
  SumsToFloats terms;  ///< without zero_points; `relu` is not looked at
  GemmEnd end = GemmEnd::None;
  const float* addend = nullptr;  ///< [rows, N], may be `dst`; null: nothing is added
  float* dst = nullptr;           ///< [rows, N]
};

/// A block of sums [rows][columns], rows `stride` apart, whose first is that of (row, channel).
struct SumBlock {
  const std::int32_t* sums;
  std::int64_t stride;
  std::int64_t row, rows;
  std::int64_t channel, columns;
};

/// Panels that are multiplied at a time.
inline constexpr std::int64_t kGemmPanels = 2;

/// Whether gemm_int8 is faster than LinearInt8 and a pass over its sums; `has_tail` when there is
/// more to do with the floats than relu.
bool has_gemm_int8(const GemvInt8& call, bool has_tail);
/// Writes the channels of the panels [begin, end) for all rows.
void gemm_int8(const GemvInt8& call, const GemmOutput& output, std::int64_t begin,
               std::int64_t end);
std::string_view gemm_int8_name(const GemvInt8& call);

// What gemm_int8 is made of.

void floats_of_block(const SumBlock& block, const GemmOutput& output, std::int64_t channels);
void gemm_int8_simd(const GemvInt8& call, const GemmOutput& output, std::int64_t begin,
                    std::int64_t end);
/// Tiles of 16 rows by 64 codes (AMX), within the limit that ONEDNN_MAX_CPU_ISA sets.
bool has_tiles();
/// in_features is a multiple of 64.
void gemm_int8_tiles(const GemvInt8& call, const GemmOutput& output, std::int64_t begin,
                     std::int64_t end);

}  // namespace quanta::cpu
