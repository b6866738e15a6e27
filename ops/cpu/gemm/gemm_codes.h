#pragma once

// Private: products of rows of 8-bit codes with a weight in panels, that become codes again block
// by block while their sums are in registers or the L1 cache: convolutions and linear layers. Exact
// sums on every instruction set.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/aligned_vector.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/gemm/memory_ahead.h"
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

/// Where the rows of a product lie: lines of them, the rows of a line at one distance. They may
/// overlap: the pixels under a kernel are rows of an image as it is.
struct CodeRows {
  const std::uint8_t* src = nullptr;
  std::int64_t count = 0;   ///< rows of a line
  std::int64_t stride = 0;  ///< from row to row
  std::int64_t lines = 1, line_stride = 0;
  /// A row's codes are `run` neighbours at each of these offsets from its begin, one after the other
  /// in the weight, which fills each run up to a multiple of 4, with tiles of 64; empty: only at its
  /// begin.
  std::span<const std::int64_t> offsets{};
  std::int64_t run = 0;
  /// Bytes that can be read behind the last row's last code. Several lines need 64.
  std::int64_t beyond = 0;

  std::int64_t rows() const { return lines * count; }
};
/// Dense rows [rows, depth].
CodeRows dense_rows(const std::uint8_t* src, std::int64_t rows, std::int64_t depth);

/// The codes of a tensor like the result, which are added to the product's codes: torch's
/// quantized::add after it. The product's codes are `lhs`. They lie elsewhere than the result.
struct CodeAddend {
  const std::uint8_t* codes = nullptr;  ///< null: nothing is added
  AddArgs args{};
};

/// dst[r][n] = code of sum over k of row r[k] * weight[n][k], all results dense. On the calling
/// thread: panels [panel_begin, panel_end), both even.
struct GemmCodes {
  CodeRows rows;
  const CodePanels& weight;
  const PanelRequantize& requantize;
  std::uint8_t* dst;
  const CodeTable* table = nullptr;  ///< what becomes of each code at last; null: nothing
  CodeAddend addend{};               ///< what is added before that
  MemoryAhead* ahead = nullptr;      ///< what this thread asks for on the way
};
void gemm_codes(const GemmCodes& call, std::int64_t panel_begin, std::int64_t panel_end);
std::string_view gemm_codes_name(const CodePanels& weight, std::int64_t rows);

/// What comes after a call (quanta::detail::upcoming_memory), for one of its threads, which
/// multiplies `rows` rows with `panels` panels.
MemoryAhead memory_ahead(std::span<const std::byte> memory, const CodePanels& weight,
                         std::int64_t rows, std::int64_t panels);

/// Moves where a call's results go, and what is added to them, down by so many rows.
void skip_results(GemmCodes& call, std::int64_t rows);
/// The part of a call with one line that has `count` rows from `row` on.
GemmCodes part_of_line(const GemmCodes& call, std::int64_t row, std::int64_t count);
/// gemm_codes of a call with one line for all rows and panels, on up to `threads` threads.
void parallel_gemm_codes(const GemmCodes& call, int threads);

// What gemm_codes is made of.

/// How many rows of a line are multiplied with all panels before the next ones: so many that they
/// stay in `l1_bytes` while the weight comes from the L2 cache. Long rows would be too few for that,
/// and a weight that the L2 cache does not hold should come once: then as many as that holds, while
/// two panels stay in the L1 cache. A multiple of `block`.
std::int64_t rows_together(const GemmCodes& call, std::int64_t panels, std::int64_t l1_bytes,
                           std::int64_t block);
/// Whether a weight of that many panels stays in the L2 cache from some rows to the next.
bool stays_in_cache(const CodePanels& weight, std::int64_t panels);

/// Sums [rows][32] that have the compensation in them, of panels `panel` and the next, to codes. Rows
/// become codes in groups of up to four: kSpareRows rows behind the last one are read, whatever they
/// hold.
inline constexpr std::int64_t kSpareRows = 3;
using CodesOfSums = void(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                         std::int64_t rows, std::int64_t panel);
/// The one for this machine.
CodesOfSums* codes_of_sums();
/// AMX.
void gemm_codes_tiles(const GemmCodes& call, std::int64_t panel_begin, std::int64_t panel_end);

}  // namespace quanta::cpu
