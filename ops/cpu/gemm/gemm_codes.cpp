#include "quanta/ops/cpu/gemm/gemm_codes.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/gemm_codes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quanta/ops/cpu/gemm/int8_kernel.h"
#include "quanta/ops/cpu/simd/int8_dot_simd.h"
#include "quanta/ops/cpu/simd/lookup_simd.h"
#include "quanta/ops/cpu/simd/requantize_simd.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int64_t kPairColumns = 32;

/// How sums end: whether results before the clamp are known to be within the range of int32, and
/// whether codes are looked up in a table while they are in a register.
enum class Ending : std::uint8_t { Any, Bounded, BoundedTable };

inline Ending ending_of(const GemmCodes& call) {
  if (!call.requantize.bounded) return Ending::Any;
  return call.table != nullptr ? Ending::BoundedTable : Ending::Bounded;
}

// The columns of a pair of panels that there are.
inline std::int64_t columns_of(const GemmCodes& call, std::int64_t panel) {
  return std::min(kPairColumns, call.weight.out_features - panel * 16);
}

inline void copy_columns(const std::uint8_t* codes, std::int64_t columns, std::uint8_t* dst) {
  std::int64_t i = 0;
  for (; i + 8 <= columns; i += 8) std::memcpy(dst + i, codes + i, 8);
  for (; i < columns; ++i) dst[i] = codes[i];
}

#if QUANTA_VECTORS

using SumVector = hn::Vec<Sums>;
inline constexpr std::size_t kBytes = kVectorBytes;
inline constexpr auto kLanes = static_cast<std::int64_t>(kBytes / 4);
/// Vectors of sums in a row of a pair of panels: 2 or 4.
inline constexpr int kRowVectors = static_cast<int>(kPairColumns / kLanes);

/// The numbers of a pair of panels, in registers.
struct PairTerms {
  hn::Vec<Floats<kBytes>> bias[kRowVectors], multiplier[kRowVectors];

  HWY_INLINE PairTerms(const PanelRequantize& requantize, std::int64_t panel) {
    const std::int64_t n = panel * 16;
#pragma GCC unroll 4
    for (int v = 0; v < kRowVectors; ++v) {
      const std::int64_t at = n + v * kLanes;
      bias[v] = hn::LoadU(Floats<kBytes>(), requantize.bias.data() + at);
      multiplier[v] = hn::LoadU(Floats<kBytes>(), requantize.multiplier.data() + at);
    }
  }
};

inline RequantizeParams params_of(const PanelRequantize& requantize) {
  return {nullptr,        nullptr,        requantize.zero_point,
          requantize.min, requantize.max, requantize.bias_factor};
}

/// Four vectors of sums, `sum(i)`, of which each row has `row_vectors`, to codes in their order.
template <Ending kEnding, class Sum>
HWY_INLINE hn::Vec<Bytes<kBytes>> codes_of(const Sum& sum, int row_vectors, const PairTerms& terms,
                                           const Requantizer<kBytes>& requantizer,
                                           const CodeTable* table) {
  hn::Vec<Ints<kBytes>> part[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int v = i % row_vectors;
    if constexpr (kEnding != Ending::Any) {
      part[i] = requantizer.scaled_bounded(sum(i), terms.bias[v], terms.multiplier[v]);
    } else {
      part[i] = requantizer.scaled(sum(i), terms.bias[v], terms.multiplier[v]);
    }
  }
  const auto codes = in_order<kBytes>(requantizer.codes(part[0], part[1], part[2], part[3]));
  if constexpr (kEnding == Ending::BoundedTable) return TableVectors(*table)(codes);
  return codes;
}

/// Writes the rows that lie one after the other in `codes`, `there` of them.
template <int kVectors>
HWY_INLINE void store_codes(hn::Vec<Bytes<kBytes>> codes, std::uint8_t* dst, std::int64_t stride,
                            std::int64_t columns, int there) {
  constexpr std::int64_t kWidth = kVectors * kLanes;
  constexpr int kGroup = 4 / kVectors;
  alignas(64) std::uint8_t rows[kBytes];
  hn::Store(codes, Bytes<kBytes>(), rows);
  if (columns >= kWidth) {
    const hn::FixedTag<std::uint8_t, kWidth> d;
#pragma GCC unroll 4
    for (int r = 0; r < kGroup; ++r) {
      if (r < there) hn::StoreU(hn::Load(d, rows + r * kWidth), d, dst + r * stride);
    }
    return;
  }
  for (int r = 0; r < there; ++r) copy_columns(rows + r * kWidth, columns, dst + r * stride);
}

template <Ending kEnding, int kVectors>
HWY_INLINE void codes_of_block(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                               std::int64_t rows, std::int64_t panel) {
  constexpr int kGroup = 4 / kVectors;
  const PairTerms terms(call.requantize, panel);
  const Requantizer<kBytes> requantizer(params_of(call.requantize));
  const std::int64_t stride = call.weight.out_features;
  const std::int64_t columns = columns_of(call, panel);
  std::uint8_t* dst = call.dst + row * stride + panel * 16;
  for (std::int64_t r = 0; r < rows; r += kGroup) {
    const std::int32_t* at = sums + r * kPairColumns;
    const auto codes = codes_of<kEnding>(
        [at](int i) {
          return hn::LoadU(Sums(), at + i / kVectors * kPairColumns + i % kVectors * kLanes);
        },
        kVectors, terms, requantizer, call.table);
    store_codes<kVectors>(codes, dst + r * stride, stride, columns,
                          static_cast<int>(std::min<std::int64_t>(kGroup, rows - r)));
  }
}

template <Ending kEnding>
HWY_INLINE void codes_of_columns(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                                 std::int64_t rows, std::int64_t panel) {
  if (columns_of(call, panel) > 16) {
    codes_of_block<kEnding, kRowVectors>(call, sums, row, rows, panel);
  } else {
    codes_of_block<kEnding, kRowVectors / 2>(call, sums, row, rows, panel);
  }
}

void CodesOfSums(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                 std::int64_t rows, std::int64_t panel) {
  switch (ending_of(call)) {
    case Ending::Any:
      return codes_of_columns<Ending::Any>(call, sums, row, rows, panel);
    case Ending::Bounded:
      return codes_of_columns<Ending::Bounded>(call, sums, row, rows, panel);
    case Ending::BoundedTable:
      return codes_of_columns<Ending::BoundedTable>(call, sums, row, rows, panel);
  }
}

inline constexpr int kMaxRows = kBlocks.gemm_codes_rows;

/// The sums of kRows rows and kVectors vectors of channels from `panel` on, which start as the
/// compensation.
template <int kRows, int kVectors>
HWY_INLINE void multiply(const GemmCodes& call, std::int64_t row, std::int64_t panel,
                         SumVector (&acc)[kRows][kRowVectors]) {
  constexpr int kPanelVectors = kRowVectors / 2;
  const std::int64_t panel_bytes = call.weight.panel_bytes();
  const std::int64_t depth = call.weight.in_features;
  const std::int8_t* weight = call.weight.panel(panel);
  const std::uint8_t* src = call.src + row * depth;
  const std::int32_t* start = call.requantize.compensation.data() + panel * 16;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const auto first = hn::LoadU(Sums(), start + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) acc[r][v] = first;
  }
  for (std::int64_t k = 0; k < depth; k += 4) {
    hn::Vec<Weights> w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      w[v] = hn::LoadU(Weights(), weight + k * 16 + v / kPanelVectors * panel_bytes +
                                      v % kPanelVectors * static_cast<std::int64_t>(kBytes));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      std::int32_t four;
      std::memcpy(&four, src + r * depth + k, sizeof(four));
      const auto x = hn::BitCast(Codes(), hn::Set(Sums(), four));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = Vnni::add(acc[r][v], x, w[v]);
    }
  }
}

/// Sums to the codes of kVectors vectors of a row, in groups of rows that fill a vector of bytes.
template <Ending kEnding, int kRows, int kVectors>
HWY_INLINE void store_rows(const GemmCodes& call, std::int64_t row, std::int64_t panel,
                           const SumVector (&acc)[kRows][kRowVectors],
                           const Requantizer<kBytes>& requantizer) {
  constexpr int kGroup = 4 / kVectors;
  const PairTerms terms(call.requantize, panel);
  const std::int64_t stride = call.weight.out_features;
  const std::int64_t columns = columns_of(call, panel);
  std::uint8_t* dst = call.dst + row * stride + panel * 16;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r += kGroup) {
    const int there = std::min(kGroup, kRows - r);
    const auto codes = codes_of<kEnding>(
        [&](int i) { return acc[r + std::min(i / kVectors, there - 1)][i % kVectors]; }, kVectors,
        terms, requantizer, call.table);
    store_codes<kVectors>(codes, dst + r * stride, stride, columns, there);
  }
}

/// kRows rows times a pair of panels, or the first of one, to codes.
template <Ending kEnding, int kRows, int kVectors>
HWY_INLINE void multiply_block(const GemmCodes& call, std::int64_t row, std::int64_t panel,
                               const Requantizer<kBytes>& requantizer) {
  SumVector acc[kRows][kRowVectors];
  multiply<kRows, kVectors>(call, row, panel, acc);
  store_rows<kEnding, kRows, kVectors>(call, row, panel, acc, requantizer);
}

template <Ending kEnding, int kRows, int kVectors>
HWY_INLINE void multiply_rows(const GemmCodes& call, std::int64_t row, std::int64_t end,
                              std::int64_t panel, const Requantizer<kBytes>& requantizer) {
  for (; row + kRows <= end; row += kRows) {
    multiply_block<kEnding, kRows, kVectors>(call, row, panel, requantizer);
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows == 12 ? 6 : (kRows == 6 ? 4 : kRows / 2);
    multiply_rows<kEnding, kFewer, kVectors>(call, row, end, panel, requantizer);
  }
}

template <Ending kEnding>
void multiply_all(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                  std::int64_t panel_begin, std::int64_t panel_end) {
  // Rows of codes that stay in the L1 cache while all panels pass.
  constexpr std::int64_t kCachedBytes = 16384;
  const std::int64_t chunk =
      std::max<std::int64_t>(kCachedBytes / call.weight.in_features / kMaxRows, 2) * kMaxRows;
  const Requantizer<kBytes> requantizer(params_of(call.requantize));
  for (std::int64_t row = row_begin; row < row_end; row += chunk) {
    const std::int64_t end = std::min(row + chunk, row_end);
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      if (columns_of(call, panel) > 16) {
        multiply_rows<kEnding, kMaxRows, kRowVectors>(call, row, end, panel, requantizer);
      } else {
        multiply_rows<kEnding, kMaxRows, kRowVectors / 2>(call, row, end, panel, requantizer);
      }
    }
  }
}

void GemmCodesSimd(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                   std::int64_t panel_begin, std::int64_t panel_end) {
  switch (ending_of(call)) {
    case Ending::Any:
      return multiply_all<Ending::Any>(call, row_begin, row_end, panel_begin, panel_end);
    case Ending::Bounded:
      return multiply_all<Ending::Bounded>(call, row_begin, row_end, panel_begin, panel_end);
    case Ending::BoundedTable:
      return multiply_all<Ending::BoundedTable>(call, row_begin, row_end, panel_begin, panel_end);
  }
}

bool LooksUp() { return true; }

#else  // !QUANTA_VECTORS

void CodesOfSums(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                 std::int64_t rows, std::int64_t panel) {
  const PanelRequantize& to_code = call.requantize;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns_of(call, panel); ++c) {
      const std::int64_t n = panel * 16 + c;
      const auto i = static_cast<std::size_t>(n);
      call.dst[(row + r) * call.weight.out_features + n] = static_cast<std::uint8_t>(
          math::requantize(sums[r * kPairColumns + c], to_code.bias[i], to_code.bias_factor,
                           to_code.multiplier[i], to_code.zero_point, to_code.min, to_code.max));
    }
  }
}

void GemmCodesSimd(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                   std::int64_t panel_begin, std::int64_t panel_end) {
  for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      const std::uint8_t* src = call.src + row * call.weight.in_features;
      std::int32_t sums[kPairColumns];
      std::copy_n(&call.requantize.compensation[static_cast<std::size_t>(panel * 16)], kPairColumns,
                  sums);
      add_panel_products(src, call.weight, panel, sums);
      add_panel_products(src, call.weight, panel + 1, sums + kPanelChannels);
      CodesOfSums(call, sums, row, 1, panel);
    }
  }
}

bool LooksUp() { return false; }

#endif  // QUANTA_VECTORS

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(CodesOfSums);
HWY_EXPORT(GemmCodesSimd);
HWY_EXPORT(LooksUp);

namespace {

bool looks_up() { return HWY_DYNAMIC_DISPATCH(LooksUp)(); }

void multiply_part(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                   std::int64_t panel_begin, std::int64_t panel_end) {
  if (gemm_codes_uses_tiles(call.weight.tiles, row_end - row_begin)) {
    return gemm_codes_tiles(call, row_begin, row_end, panel_begin, panel_end);
  }
  HWY_DYNAMIC_DISPATCH(GemmCodesSimd)(call, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace

PanelRequantize panel_requantize(const RequantizeParams& params, const std::int32_t* compensation,
                                 const CodePanels& weight) {
  PanelRequantize result;
  const auto channels = static_cast<std::size_t>(weight.out_features);
  const auto padded = static_cast<std::size_t>(round_up(weight.out_features, 32));
  result.bias.resize(padded);
  result.multiplier.resize(padded);
  result.compensation.resize(padded);
  if (params.bias != nullptr) std::copy_n(params.bias, channels, result.bias.begin());
  std::copy_n(params.multiplier, channels, result.multiplier.begin());
  if (compensation != nullptr) std::copy_n(compensation, channels, result.compensation.begin());
  result.zero_point = params.zero_point;
  result.min = params.min;
  result.max = params.max;
  result.bias_factor = params.bias_factor;
  // The largest sum: 255 * 128 for each code, twice for the compensation.
  const double most = 2.0 * 255.0 * 128.0 * static_cast<double>(weight.in_features);
  result.bounded = params.max == 255;
  for (std::size_t n = 0; n < channels; ++n) {
    const double bias = static_cast<double>(result.bias[n]) * result.bias_factor;
    const double reach = (most + std::fabs(bias)) * std::fabs(result.multiplier[n]);
    result.bounded = result.bounded && reach < 1073741824.0;  // false for NaN
  }
  return result;
}

void codes_of_sums(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                   std::int64_t rows, std::int64_t panel) {
  HWY_DYNAMIC_DISPATCH(CodesOfSums)(call, sums, row, rows, panel);
}

void gemm_codes(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                std::int64_t panel_begin, std::int64_t panel_end) {
  multiply_part(call, row_begin, row_end, panel_begin, panel_end);
  // Bounded sums have been looked up already.
  if (call.table == nullptr || (call.requantize.bounded && looks_up())) return;
  const std::int64_t channels = call.weight.out_features;
  const std::int64_t first = panel_begin * 16;
  const std::int64_t count = std::min(panel_end * 16, channels) - first;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    std::uint8_t* codes = call.dst + row * channels + first;
    lookup(codes, codes, count, *call.table, Store::Cached);
  }
}

std::string_view gemm_codes_name(const CodePanels& weight, std::int64_t rows) {
  return gemm_codes_uses_tiles(weight.tiles, rows) ? "quanta:gemm:amx" : "quanta:gemm:vnni";
}

void parallel_gemm_codes(const GemmCodes& call, int threads) {
  const std::int64_t panels = call.weight.panels();
  if (threads <= 1) return gemm_codes(call, 0, call.rows, 0, panels);
  // Parts of rows, or of panels where there are few rows.
  constexpr std::int64_t kRowBlock = 48;
  const std::int64_t blocks = ceil_div(call.rows, kRowBlock);
  if (blocks >= 2 * threads) {
    parallel_for(blocks, ceil_div(blocks, threads), [&](std::int64_t begin, std::int64_t end) {
      gemm_codes(call, begin * kRowBlock, std::min(end * kRowBlock, call.rows), 0, panels);
    });
    return;
  }
  const std::int64_t pairs = panels / 2;
  parallel_for(pairs, ceil_div(pairs, threads), [&](std::int64_t begin, std::int64_t end) {
    gemm_codes(call, 0, call.rows, begin * 2, end * 2);
  });
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
