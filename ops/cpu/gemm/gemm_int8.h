#pragma once

// Private: products of many rows of codes with a weight in panels that become floats
// block by block, while their sums are in the L1 cache. Exact sums on every instruction set.

#include <cstdint>
#include <string_view>

#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/cpu/gemm/sums_to_floats.h"
#include "quanta/ops/cpu/shared_range.h"

namespace quanta::cpu {

/// Rows of codes are readable up to the next multiple of this, whatever the last of them hold.
inline constexpr std::int64_t kGemmRowAlignment = 16;

/// The last step on each float.
enum class GemmEnd : std::uint8_t { None, ReLU, Gelu };

/// y = end(float of the sum, see SumsToFloats) + addend.
struct GemmOutput {
  SumsToFloats terms;  ///< without zero_points; `relu` is not looked at
  GemmEnd end = GemmEnd::None;
  const float* addend = nullptr;  ///< [rows, N], may be `dst`; null: nothing is added
  float* dst = nullptr;           ///< [rows, N]
  RangeLanes* range = nullptr;    ///< joined with that of each y; of one thread; null: not wanted
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

/// Writes the channels of the panels [begin, end) for all rows.
void gemm_int8(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
               std::int64_t end);
std::string_view gemm_int8_name(const PanelProduct& call);

// What gemm_int8 is made of.

void floats_of_block(const SumBlock& block, const GemmOutput& output, std::int64_t channels);
void gemm_int8_simd(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
                    std::int64_t end);
/// in_features is a multiple of 64.
void gemm_int8_tiles(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
                     std::int64_t end);

}  // namespace quanta::cpu
