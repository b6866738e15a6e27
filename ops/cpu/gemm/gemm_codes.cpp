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
#include "quanta/ops/cpu/simd/code_end_simd.h"
#include "quanta/ops/cpu/simd/code_rows_simd.h"
#include "quanta/ops/cpu/simd/int8_dot_simd.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/upcoming_memory.h"
#include "quanta/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#if QUANTA_VECTORS

using SumVector = hn::Vec<Sums>;
inline constexpr auto kLanes = static_cast<std::int64_t>(kVectorBytes / 4);
/// Vectors of sums in a row of a pair of panels: 2 or 4.
inline constexpr int kRowVectors = static_cast<int>(kPairColumns / kLanes);

template <Ending kEnding, int kVectors>
HWY_INLINE void codes_of_block(const GemmCodes& call, const std::int32_t* sums, std::int64_t row,
                               std::int64_t rows, std::int64_t panel) {
  using End = CodeEnd<kEnding, kVectors>;
  const End end(call, panel);
  const auto sum_from = [sums](std::int64_t r) QUANTA_INLINED {
    const std::int32_t* at = sums + r * kPairColumns;
    return [at](int i) QUANTA_INLINED {
      return hn::LoadU(Sums(), at + i / kVectors * kPairColumns + i % kVectors * kLanes);
    };
  };
  std::int64_t r = 0;
  const std::int64_t exact =
      end.is_whole() ? rows : (ends_in_next_row(call, panel, End::kWidth) ? rows - 1 : 0);
  for (; r + End::kGroup <= exact; r += End::kGroup) end.write(sum_from(r), row + r);
  for (; r < rows; r += End::kGroup) {
    end.write_some(sum_from(r), row + r,
                   static_cast<int>(std::min<std::int64_t>(End::kGroup, rows - r)));
  }
}

void EndSums(const GemmCodes& call, const std::int32_t* sums, std::int64_t row, std::int64_t rows,
             std::int64_t panel) {
  with_ending(ending_of(call), [&](auto ending) QUANTA_ATTR {
    if (columns_of(call, panel) > 16) {
      codes_of_block<ending(), kRowVectors>(call, sums, row, rows, panel);
    } else {
      codes_of_block<ending(), kRowVectors / 2>(call, sums, row, rows, panel);
    }
  });
}

inline constexpr int kMaxRows = kBlocks.gemm_codes_rows;

/// Blocks of fewer rows store their sums first, as columns do that are not written with whole
/// vectors: they are rare, and each ending is code of its own.
inline constexpr int kLeastRowsFromRegisters = std::min(kMaxRows, 7);

/// Rows times a pair of panels, or the first of one.
template <int kRows, int kVectors>
class Block {
 public:
  /// `src` is where row `row` of the result has its codes.
  HWY_INLINE Block(const GemmCodes& call, const std::uint8_t* src, std::int64_t row,
                   std::int64_t panel)
      : call_(call), src_(src), row_(row), panel_(panel) {}

  HWY_INLINE void run(Ending ending) const {
    fetch_results();
    SumVector sums[kRows][kVectors];
    add_products(sums);
    if constexpr (kRows >= kLeastRowsFromRegisters) {
      constexpr std::int64_t kWidth = kVectors * kLanes;
      if (columns_of(call_, panel_) >= kWidth || ends_in_next_row(call_, panel_, kWidth)) {
        return with_ending(ending, [&](auto kind) QUANTA_INLINED { write<kind()>(sums); });
      }
    }
    alignas(64) std::int32_t stored[(kRows + kSpareRows) * kPairColumns];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sums[r][v], Sums(), stored + r * kPairColumns + v * kLanes);
      }
    }
    EndSums(call_, stored, row_, kRows, panel_);
  }

 private:
  /// Asks for the lines of the result that a block with few products would wait for. More products
  /// take longer than that, and lines that come before them take the place of codes in the L1 cache.
  HWY_INLINE void fetch_results() const {
    constexpr std::int64_t kShort = 64;
    if (call_.weight.in_features > kShort) return;
    const std::int64_t channels = call_.weight.out_features;
    const std::uint8_t* dst = call_.dst + row_ * channels + panel_ * kPanelChannels;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(dst + r * channels, 1, 3);
  }

  /// The sums, which start as the compensation.
  HWY_INLINE void add_products(SumVector (&sums)[kRows][kVectors]) const {
    const CodeRows& rows = call_.rows;
    const std::int64_t panel_bytes = call_.weight.panel_bytes();
    const std::int8_t* weight = call_.weight.panel(panel_);
    const std::int32_t* start = call_.requantize.compensation.data() + panel_ * 16;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto first = hn::LoadU(Sums(), start + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r][v] = first;
    }
    const std::int64_t groups = ceil_div(rows.run, kPanelDepth);
    const auto runs = std::max<std::int64_t>(static_cast<std::int64_t>(rows.offsets.size()), 1);
    MemoryAhead::Lines ahead{reinterpret_cast<const std::byte*>(weight), 0};
    if (call_.ahead != nullptr) ahead = call_.ahead->take(runs * (groups / kGroupsTogether));
    constexpr bool kAsksForRows = kRows == kMaxRows && DenseRowsAhead<kRows>::kPays;
    DenseRowsAhead<kRows> rows_ahead(src_, rows.run,
                                     rows.offsets.empty() && rows.stride == rows.run);
    const auto ask = [&] QUANTA_INLINED {
      __builtin_prefetch(ahead.begin, 0, 2);
      ahead.begin += ahead.stride;
      if constexpr (kAsksForRows) rows_ahead.fetch();
    };
    const std::int64_t filling =
        (call_.weight.in_features / runs - groups * kPanelDepth) * kPanelChannels;
    for (std::int64_t run = 0; run < runs; ++run, weight += filling) {
      const std::int64_t offset =
          rows.offsets.empty() ? 0 : rows.offsets[static_cast<std::size_t>(run)];
      RowPointers<kRows> codes(src_ + offset, rows.stride);
      weight = add_groups<Vnni>(codes, groups, weight, panel_bytes, sums, ask);
    }
  }

  /// Codes of sums that are in registers.
  template <Ending kEnding>
  HWY_INLINE void write(const SumVector (&sums)[kRows][kVectors]) const {
    using End = CodeEnd<kEnding, kVectors>;
    constexpr int kLast = (kRows - 1) / End::kGroup * End::kGroup;
    const End end(call_, panel_);
    const auto sums_from = [&](int r) QUANTA_INLINED {
      return [&, r](int i) QUANTA_INLINED {
        return sums[std::min(r + i / kVectors, kRows - 1)][i % kVectors];
      };
    };
#pragma GCC unroll 16
    for (int r = 0; r < kLast; r += End::kGroup) end.write(sums_from(r), row_ + r);
    if (kLast + End::kGroup == kRows && end.is_whole()) {
      end.write(sums_from(kLast), row_ + kLast);
    } else {
      end.write_some(sums_from(kLast), row_ + kLast, kRows - kLast);
    }
  }

  const GemmCodes& call_;
  const std::uint8_t* src_;
  std::int64_t row_, panel_;
};

/// Rows [begin, end) of a line.
struct LinePart {
  std::int64_t line, begin, end;
};

/// kRows rows at a time times a pair of panels, or the first of one, to codes; then those that are
/// left in fewer.
template <int kRows, int kVectors>
HWY_NOINLINE void multiply_rows(const GemmCodes& call, LinePart part, std::int64_t panel,
                                Ending ending) {
  const CodeRows& rows = call.rows;
  const std::uint8_t* src = rows.src + part.line * rows.line_stride;
  for (; part.begin + kRows <= part.end; part.begin += kRows) {
    Block<kRows, kVectors>(call, src + part.begin * rows.stride,
                           part.line * rows.count + part.begin, panel)
        .run(ending);
  }
  if constexpr (kRows > 1) {
    if (part.begin == part.end) return;
    multiply_rows<fewer_rows(kRows), kVectors>(call, part, panel, ending);
  }
}

void multiply_part(const GemmCodes& call, const LinePart& part, std::int64_t panel, Ending ending) {
  if (columns_of(call, panel) > 16) {
    multiply_rows<kMaxRows, kRowVectors>(call, part, panel, ending);
  } else {
    multiply_rows<kMaxRows, kRowVectors / 2>(call, part, panel, ending);
  }
}

void GemmCodesSimd(const GemmCodes& call, std::int64_t panel_begin, std::int64_t panel_end) {
  const CodeRows& rows = call.rows;
  const Ending ending = ending_of(call);
  if (rows.lines > 1) {
    // Lines share most of their codes.
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      for (std::int64_t line = 0; line < rows.lines; ++line) {
        multiply_part(call, {line, 0, rows.count}, panel, ending);
      }
    }
    return;
  }
  const std::int64_t chunk = rows_together(call, panel_end - panel_begin, 16384, kMaxRows);
  for (std::int64_t row = 0; row < rows.count; row += chunk) {
    const LinePart part{0, row, std::min(row + chunk, rows.count)};
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      multiply_part(call, part, panel, ending);
    }
  }
}

bool LooksUp() { return true; }

#else  // !QUANTA_VECTORS

void EndSums(const GemmCodes& call, const std::int32_t* sums, std::int64_t row, std::int64_t rows,
             std::int64_t panel) {
  const PanelRequantize& to_code = call.requantize;
  const std::int64_t channels = call.weight.out_features;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t first = (row + r) * channels + panel * 16;
    for (std::int64_t c = 0; c < columns_of(call, panel); ++c) {
      const auto i = static_cast<std::size_t>(panel * 16 + c);
      call.dst[first + c] = static_cast<std::uint8_t>(
          math::requantize(sums[r * kPairColumns + c], to_code.bias[i], to_code.bias_factor,
                           to_code.multiplier[i], to_code.zero_point, to_code.min, to_code.max));
    }
    if (call.addend.codes == nullptr) continue;
    std::uint8_t codes[kPairColumns];
    const std::int64_t count = columns_of(call, panel);
    std::copy_n(call.dst + first, count, codes);
    add(codes, call.addend.codes + first, call.dst + first, count, call.addend.args, Rhs::Row);
  }
}

/// The codes of a row in the weight's order.
void copy_row(const CodeRows& rows, std::int64_t row, const CodePanels& weight, std::uint8_t* to) {
  const std::uint8_t* src =
      rows.src + row / rows.count * rows.line_stride + row % rows.count * rows.stride;
  if (rows.offsets.empty()) {
    std::copy_n(src, rows.run, to);
    return;
  }
  const std::int64_t step = weight.in_features / static_cast<std::int64_t>(rows.offsets.size());
  for (const std::int64_t offset : rows.offsets) {
    std::copy_n(src + offset, rows.run, to);
    to += step;
  }
}

void GemmCodesSimd(const GemmCodes& call, std::int64_t panel_begin, std::int64_t panel_end) {
  const CodeRows& rows = call.rows;
  AlignedVector<std::uint8_t> row_codes(static_cast<std::size_t>(call.weight.in_features));
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    copy_row(rows, row, call.weight, row_codes.data());
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      std::int32_t sums[kPairColumns];
      std::copy_n(&call.requantize.compensation[static_cast<std::size_t>(panel * 16)], kPairColumns,
                  sums);
      add_panel_products(row_codes.data(), call.weight, panel, sums);
      add_panel_products(row_codes.data(), call.weight, panel + 1, sums + kPanelChannels);
      EndSums(call, sums, row, 1, panel);
    }
  }
}

bool LooksUp() { return false; }

#endif  // QUANTA_VECTORS

CodesOfSums* EndOfSums() { return EndSums; }

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(EndOfSums);
HWY_EXPORT(GemmCodesSimd);
HWY_EXPORT(LooksUp);

namespace {

/// Whether the table was looked up with the sums.
bool has_looked_up(const GemmCodes& call) {
  return (call.requantize.bounded || call.addend.codes != nullptr) &&
         HWY_DYNAMIC_DISPATCH(LooksUp)();
}

}  // namespace

CodeRows dense_rows(const std::uint8_t* src, std::int64_t rows, std::int64_t depth) {
  return {.src = src, .count = rows, .stride = depth, .run = depth};
}

bool stays_in_cache(const CodePanels& weight, std::int64_t panels) {
  constexpr std::int64_t kCachedBytes = std::int64_t{1} << 20;
  return panels * weight.panel_bytes() <= kCachedBytes;
}

std::int64_t rows_together(const GemmCodes& call, std::int64_t panels, std::int64_t l1_bytes,
                           std::int64_t block) {
  constexpr std::int64_t kL2Bytes = std::int64_t{384} * 1024;
  constexpr std::int64_t kLong = 512;
  const bool is_long = call.rows.run >= kLong || !stays_in_cache(call.weight, panels);
  const std::int64_t bytes = is_long ? kL2Bytes : l1_bytes;
  const std::int64_t fitting = bytes / (std::max<std::int64_t>(call.rows.run, 1) * block);
  return std::max<std::int64_t>(fitting, 2) * block;
}

CodesOfSums* codes_of_sums() { return HWY_DYNAMIC_DISPATCH(EndOfSums)(); }

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

void gemm_codes(const GemmCodes& call, std::int64_t panel_begin, std::int64_t panel_end) {
  if (gemm_codes_uses_tiles(call.weight.tiles, call.rows.rows())) {
    gemm_codes_tiles(call, panel_begin, panel_end);
  } else {
    HWY_DYNAMIC_DISPATCH(GemmCodesSimd)(call, panel_begin, panel_end);
  }
  if (call.table == nullptr || has_looked_up(call)) return;
  const std::int64_t channels = call.weight.out_features;
  const std::int64_t first = panel_begin * 16;
  const std::int64_t count = std::min(panel_end * 16, channels) - first;
  for (std::int64_t row = 0; row < call.rows.rows(); ++row) {
    std::uint8_t* codes = call.dst + row * channels + first;
    lookup(codes, codes, count, *call.table, Store::Cached);
  }
}

std::string_view gemm_codes_name(const CodePanels& weight, std::int64_t rows) {
  return gemm_codes_uses_tiles(weight.tiles, rows) ? "quanta:gemm:amx" : "quanta:gemm:vnni";
}

void skip_results(GemmCodes& call, std::int64_t rows) {
  call.dst += rows * call.weight.out_features;
  if (call.addend.codes != nullptr) call.addend.codes += rows * call.weight.out_features;
}

GemmCodes part_of_line(const GemmCodes& call, std::int64_t row, std::int64_t count) {
  GemmCodes part = call;
  const std::int64_t behind = call.rows.count - row - count;
  part.rows.src += row * call.rows.stride;
  part.rows.count = count;
  part.rows.beyond += behind * call.rows.stride;
  skip_results(part, row);
  return part;
}

MemoryAhead memory_ahead(std::span<const std::byte> memory, const CodePanels& weight,
                         std::int64_t rows, std::int64_t panels) {
  if (memory.empty()) return {};
  // Products ask once for each block of 32 rows and 64 codes.
  const std::int64_t blocks = ceil_div(rows, std::int64_t{2} * kTileRows) * (panels / 2);
  return {memory, blocks * ceil_div(weight.depth, kTileBytes)};
}

void parallel_gemm_codes(const GemmCodes& call, int threads) {
  const std::int64_t panels = call.weight.panels();
  const std::span<const std::byte> upcoming = detail::upcoming_memory();
  const auto run = [&](GemmCodes part, std::int64_t begin, std::int64_t end) {
    MemoryAhead ahead = memory_ahead(upcoming, part.weight, part.rows.rows(), end - begin);
    part.ahead = &ahead;
    gemm_codes(part, begin, end);
  };
  if (threads <= 1) return run(call, 0, panels);
  // Parts of rows, or of panels where there are few rows.
  constexpr std::int64_t kRowBlock = 48;
  const std::int64_t rows = call.rows.count;
  const std::int64_t blocks = ceil_div(rows, kRowBlock);
  if (blocks >= 2 * threads || blocks > panels / 2) {
    parallel_for(blocks, ceil_div(blocks, threads), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * kRowBlock;
      run(part_of_line(call, first, std::min(end * kRowBlock, rows) - first), 0, panels);
    });
    return;
  }
  const std::int64_t pairs = panels / 2;
  parallel_for(pairs, ceil_div(pairs, threads),
               [&](std::int64_t begin, std::int64_t end) { run(call, begin * 2, end * 2); });
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
