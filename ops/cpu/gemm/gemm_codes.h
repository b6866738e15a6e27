#pragma once

// Private: products of rows of 8-bit codes with a weight in panels, that become codes again block
// by block while their sums are in registers or the L1 cache: pointwise convolutions and linear
// layers. Exact sums on every instruction set.

#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/aligned_vector.h"
#include "quanta/ops/cpu/gemm/panels.h"
#include "quanta/ops/cpu/gemm/requantize_rows.h"
#include "quanta/ops/cpu/lookup.h"

namespace quanta::cpu {

/// RequantizeParams for whole panels, with what is added to the sums first: all filled up.
struct PanelRequantize {
  AlignedVector<float> bias, multiplier;
  AlignedVector<std::int32_t> compensation;
  std::int32_t zero_point = 0, min = 0, max = 255;
  float bias_factor = 1.0F;
  bool bounded = false;  ///< results before the clamp are within the range of int32, and max is 255
};
/// `compensation` is what is added to the sums; null: 0.
PanelRequantize panel_requantize(const RequantizeParams& params, const std::int32_t* compensation,
                                 const CodePanels& weight);

/// dst[r][n] = code of sum over k of src[r][k] * weight[n][k], all rows dense. On the calling
/// thread: panels [panel_begin, panel_end), both even, of rows [row_begin, row_end).
struct GemmCodes {
  const std::uint8_t* src;
  std::int64_t rows;
  const CodePanels& weight;
  const PanelRequantize& requantize;
  std::uint8_t* dst;
  const CodeTable* table = nullptr;  ///< what becomes of each code at last; null: nothing
};
void gemm_codes(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                std::int64_t panel_begin, std::int64_t panel_end);
std::string_view gemm_codes_name(const CodePanels& weight, std::int64_t rows);

/// gemm_codes for all rows and panels on up to `threads` threads.
void parallel_gemm_codes(const GemmCodes& call, int threads);

// What gemm_codes is made of.

/// Sums [rows][32] that have the compensation in them, of panels `panel` and the next, to codes.
void codes_of_sums(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                   std::int64_t rows, std::int64_t panel);
/// AMX; at least 16 rows.
void gemm_codes_tiles(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                      std::int64_t panel_begin, std::int64_t panel_end);

}  // namespace quanta::cpu
