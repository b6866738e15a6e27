#include "quanta/ops/cpu/gemm/multiply_codes.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/multiply_codes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "quanta/ops/cpu/features.h"
#include "quanta/ops/cpu/gemm/amx_tiles.h"
#include "quanta/ops/cpu/simd/code_rows_simd.h"
#include "quanta/ops/cpu/simd/int8_dot_simd.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS

inline constexpr int kMaxRows = kBlocks.gemm_codes_rows;
inline constexpr auto kBytes = static_cast<std::int64_t>(kVectorBytes);
inline constexpr int kSumLanes = static_cast<int>(hn::MaxLanes(Sums()));
inline constexpr int kVectorsOfPanel = static_cast<int>(kPanelChannels) / kSumLanes;
inline constexpr int kWidth = 2 * kVectorsOfPanel;

/// kRows rows times the two panels from `panel` on.
template <class Product, int kRows>
HWY_INLINE void multiply_block(const PackedProduct& call, std::int64_t row, std::int64_t panel,
                               std::int32_t* sums) {
  const std::int64_t stride = packed_depth(call.depth);
  const std::int64_t panel_bytes = stride * kPanelChannels;
  RowPointers<kRows> src(call.rows + row * stride, stride);
  const std::int8_t* weight = call.panels + panel * panel_bytes;
  hn::Vec<Sums> acc[kRows][kWidth];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) acc[r][v] = hn::Zero(Sums());
  }
  add_groups<Product>(src, ceil_div(call.depth, kPanelDepth), weight, panel_bytes, acc,
                      [] QUANTA_INLINED {});
  const std::int64_t columns = call.panel_count * kPanelChannels;
  std::int32_t* dst = sums + row * columns + panel * kPanelChannels;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) {
      hn::StoreU(acc[r][v], Sums(), dst + r * columns + v * kSumLanes);
    }
  }
}

/// Rows from `row` on, kRows at a time; the rest fewer at a time.
template <class Product, int kRows>
HWY_INLINE void multiply_rows(const PackedProduct& call, std::int64_t row, std::int64_t panel,
                              std::int32_t* sums) {
  for (; row + kRows <= call.row_count; row += kRows) {
    multiply_block<Product, kRows>(call, row, panel, sums);
  }
  if constexpr (kRows > 1) {
    multiply_rows<Product, fewer_rows(kRows)>(call, row, panel, sums);
  }
}

void Multiply(const PackedProduct& call, std::int32_t* sums) {
  with_product(CodeBits::Eight, [&](auto product) {
    for (std::int64_t panel = 0; panel < call.panel_count; panel += 2) {
      multiply_rows<decltype(product), kMaxRows>(call, 0, panel, sums);
    }
  });
}

/// Four rows of 16 bytes: the four bytes of each column together.
HWY_INLINE void interleave_rows(const std::uint8_t* src, std::int64_t stride, std::uint8_t flip,
                                std::int8_t* dst) {
  const hn::Full128<std::uint8_t> d;
  const hn::Full128<std::uint16_t> d16;
  const auto flips = hn::Set(d, flip);
  const auto row = [&](std::int64_t r)
                       QUANTA_INLINED { return hn::Xor(hn::LoadU(d, src + r * stride), flips); };
  const auto a = row(0);
  const auto b = row(1);
  const auto c = row(2);
  const auto e = row(3);
  const auto low_ab = hn::BitCast(d16, hn::InterleaveLower(d, a, b));
  const auto low_ce = hn::BitCast(d16, hn::InterleaveLower(d, c, e));
  const auto high_ab = hn::BitCast(d16, hn::InterleaveUpper(d, a, b));
  const auto high_ce = hn::BitCast(d16, hn::InterleaveUpper(d, c, e));
  auto* to = reinterpret_cast<std::uint16_t*>(dst);
  hn::StoreU(hn::InterleaveLower(d16, low_ab, low_ce), d16, to);
  hn::StoreU(hn::InterleaveUpper(d16, low_ab, low_ce), d16, to + 8);
  hn::StoreU(hn::InterleaveLower(d16, high_ab, high_ce), d16, to + 16);
  hn::StoreU(hn::InterleaveUpper(d16, high_ab, high_ce), d16, to + 24);
}

/// One packed row; gives its sum.
HWY_INLINE std::int32_t pack_row(const std::uint8_t* src, std::int64_t depth, std::uint8_t flip,
                                 std::uint8_t* dst) {
  const Codes d;
  const hn::Repartition<std::uint64_t, Codes> wide;
  const auto flips = hn::Set(d, flip);
  auto sum = hn::Zero(wide);
  std::int64_t k = 0;
  const auto step = [&](const std::uint8_t* from) QUANTA_INLINED {
    const auto codes = hn::Xor(hn::LoadU(d, from), flips);
    hn::StoreU(codes, d, dst + k);
    sum = hn::Add(sum, hn::SumsOf8(codes));
  };
  for (; k + kBytes <= depth; k += kBytes) step(src + k);
  if (k < depth) {
    // What is flipped is 0 again afterwards.
    std::uint8_t last[kBytes];
    std::fill_n(last, kBytes, flip);
    std::memcpy(last, src + k, static_cast<std::size_t>(depth - k));
    step(last);
    k += kBytes;
  }
  std::fill(dst + k, dst + packed_depth(depth), std::uint8_t{0});
  return static_cast<std::int32_t>(hn::GetLane(hn::SumOfLanes(wide, sum)));
}

struct SumSource {
  const std::int32_t* sums;
  const std::int32_t* column_terms;
  hn::Vec<IntTag> row_term;
  hn::Vec<FloatTag> scale;
  HWY_INLINE hn::Vec<IntTag> sum_at(std::int64_t i) const {
    const IntTag d;
    return hn::Add(hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, column_terms + i)), row_term);
  }
  HWY_INLINE hn::Vec<FloatTag> at(std::int64_t i) const {
    return hn::Mul(hn::ConvertTo(FloatTag(), sum_at(i)), scale);
  }
};

#else

void Multiply(const PackedProduct& call, std::int32_t* sums) {
  const std::int64_t stride = packed_depth(call.depth);
  const std::int64_t columns = call.panel_count * kPanelChannels;
  for (std::int64_t r = 0; r < call.row_count; ++r) {
    for (std::int64_t n = 0; n < columns; ++n) {
      const std::int8_t* panel = call.panels + n / kPanelChannels * kPanelChannels * stride;
      std::uint32_t sum = 0;
      for (std::int64_t k = 0; k < call.depth; ++k) {
        sum += static_cast<std::uint32_t>(call.rows[r * stride + k] *
                                          panel[panel_index<std::int8_t>(n % kPanelChannels, k)]);
      }
      sums[r * columns + n] = static_cast<std::int32_t>(sum);
    }
  }
}

std::int32_t pack_row(const std::uint8_t* src, std::int64_t depth, std::uint8_t flip,
                      std::uint8_t* dst) {
  std::uint32_t sum = 0;
  for (std::int64_t k = 0; k < depth; ++k) {
    dst[k] = static_cast<std::uint8_t>(src[k] ^ flip);
    sum += dst[k];
  }
  std::fill(dst + depth, dst + packed_depth(depth), std::uint8_t{0});
  return static_cast<std::int32_t>(sum);
}

#endif  // QUANTA_VECTORS

/// Columns [first, first + count) of a panel whose columns lie along memory, four bytes at a time.
void pack_long_columns(const CodeMatrix& matrix, std::uint32_t flips, std::int64_t first,
                       std::int64_t count, std::int8_t* panel) {
  for (std::int64_t n = 0; n < count; ++n) {
    const std::uint8_t* column = matrix.codes + (first + n) * matrix.column_stride;
    std::int64_t k = 0;
    for (; k + kPanelDepth <= matrix.depth; k += kPanelDepth) {
      std::uint32_t codes;
      std::memcpy(&codes, column + k, sizeof(codes));
      codes ^= flips;
      std::memcpy(panel + panel_index<std::int8_t>(n, k), &codes, sizeof(codes));
    }
    for (; k < matrix.depth; ++k) {
      panel[panel_index<std::int8_t>(n, k)] =
          static_cast<std::int8_t>(static_cast<std::uint8_t>(column[k] ^ (flips & 0xFFU)));
    }
  }
}

void PackColumns(const CodeMatrix& matrix, std::uint8_t flip, std::int64_t begin,
                 std::int64_t panels, std::int8_t* dst) {
  const std::int64_t bytes = packed_depth(matrix.depth) * kPanelChannels;
  for (std::int64_t panel = begin; panel < begin + panels; ++panel, dst += bytes) {
    const std::int64_t first = panel * kPanelChannels;
    const std::int64_t count = std::clamp<std::int64_t>(matrix.columns - first, 0, kPanelChannels);
    std::int64_t whole = 0;
#if QUANTA_VECTORS
    if (matrix.column_stride == 1 && count == kPanelChannels) {
      for (; whole + kPanelDepth <= matrix.depth; whole += kPanelDepth) {
        interleave_rows(matrix.codes + whole * matrix.row_stride + first, matrix.row_stride, flip,
                        dst + whole * kPanelChannels);
      }
    }
#endif
    std::fill(dst + whole * kPanelChannels, dst + bytes, std::int8_t{0});
    if (matrix.row_stride == 1) {
      pack_long_columns(matrix, flip * 0x01010101U, first, count, dst);
      continue;
    }
    for (std::int64_t k = whole; k < matrix.depth; ++k) {
      for (std::int64_t n = 0; n < count; ++n) {
        const std::uint8_t code =
            matrix.codes[k * matrix.row_stride + (first + n) * matrix.column_stride];
        dst[panel_index<std::int8_t>(n, k)] =
            static_cast<std::int8_t>(static_cast<std::uint8_t>(code ^ flip));
      }
    }
  }
}

void PackRows(const std::uint8_t* src, std::int64_t stride, std::int64_t count, std::int64_t depth,
              std::uint8_t flip, std::uint8_t* rows, std::int32_t* sums) {
  for (std::int64_t r = 0; r < count; ++r) {
    sums[r] = pack_row(src + r * stride, depth, flip, rows + r * packed_depth(depth));
  }
}

std::int32_t whole_sum(const std::int32_t* sums, const std::int32_t* column_terms,
                       std::int32_t row_term, std::int64_t i) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[i]) +
                                   static_cast<std::uint32_t>(column_terms[i]) +
                                   static_cast<std::uint32_t>(row_term));
}

void SumsRowToCodes(const SumsToCodes& args, const std::int32_t* sums,
                    const std::int32_t* column_terms, std::int32_t row_term, std::int64_t count,
                    std::uint8_t* codes) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const QuantizeArgs quantize_args{args.inv_scale, args.zero_point, args.min, args.max, args.max};
  const SumSource source{sums, column_terms, hn::Set(IntTag(), row_term),
                         hn::Set(FloatTag(), args.scale)};
  i = quantize_all<NanCode::Max, false>(source, quantize_args, codes, count);
#endif
  for (; i < count; ++i) {
    const float value = static_cast<float>(whole_sum(sums, column_terms, row_term, i)) * args.scale;
    codes[i] = static_cast<std::uint8_t>(
        math::quantize(value, args.inv_scale, args.zero_point, args.min, args.max));
  }
}

void SumsRowToFloats(float scale, const std::int32_t* sums, const std::int32_t* column_terms,
                     std::int32_t row_term, std::int64_t count, float* floats) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const SumSource source{sums, column_terms, hn::Set(IntTag(), row_term),
                         hn::Set(FloatTag(), scale)};
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(source.at(i), FloatTag(), floats + i);
#endif
  for (; i < count; ++i) {
    floats[i] = static_cast<float>(whole_sum(sums, column_terms, row_term, i)) * scale;
  }
}

void AddTerms(const std::int32_t* sums, const std::int32_t* column_terms, std::int32_t row_term,
              std::int64_t count, std::int32_t* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const SumSource source{sums, column_terms, hn::Set(IntTag(), row_term), hn::Zero(FloatTag())};
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(source.sum_at(i), IntTag(), dst + i);
#endif
  for (; i < count; ++i) dst[i] = whole_sum(sums, column_terms, row_term, i);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(Multiply);
HWY_EXPORT(PackColumns);
HWY_EXPORT(PackRows);
HWY_EXPORT(SumsRowToCodes);
HWY_EXPORT(SumsRowToFloats);
HWY_EXPORT(AddTerms);

namespace {

bool use_tiles(std::int64_t rows) { return rows >= kTileRows && features().tiles; }

#ifdef QUANTA_HAS_TILES

/// 16 or 32 rows times two panels. `sums` says where those of the block before go, then where these go.
template <bool kTwo>
QUANTA_TILES void multiply_tiles(const PackedProduct& call, std::int64_t row, std::int64_t panel,
                                 std::int32_t* dst, WaitingSums& sums) {
  const std::int64_t stride = packed_depth(call.depth);
  const std::int8_t* first = call.panels + panel * kPanelChannels * stride;
  const TileBlock block{call.rows + row * stride, stride, first, first + kPanelChannels * stride};
  first_step<kTwo>(block.at<kTwo>(0), StartFromZero(), sums);
  for (std::int64_t step = 1; step < stride / kTileBytes; ++step)
    next_step<kTwo>(block.at<kTwo>(step));
  sums.dst = dst;
  sums.two = kTwo;
}

QUANTA_TILES void multiply_with_tiles(const PackedProduct& call, std::int32_t* sums) {
  if (call.panel_count == 0) return;
  const TileScope tiles;
  const std::int64_t columns = call.panel_count * kPanelChannels;
  WaitingSums waiting{.dst = sums,
                      .stride = static_cast<std::size_t>(columns) * sizeof(std::int32_t)};
  for (std::int64_t panel = 0; panel < call.panel_count; panel += 2) {
    std::int32_t* dst = sums + panel * kPanelChannels;
    std::int64_t row = 0;
    for (; row + kTileRows < call.row_count; row += 2 * kTileRows) {
      multiply_tiles<true>(call, row, panel, dst + row * columns, waiting);
    }
    if (row < call.row_count) multiply_tiles<false>(call, row, panel, dst + row * columns, waiting);
  }
  store_sums(waiting);
}

#else
void multiply_with_tiles(const PackedProduct&, std::int32_t*) {}
#endif

}  // namespace

void multiply_codes(const PackedProduct& call, std::int32_t* sums) {
  if (use_tiles(call.row_count)) return multiply_with_tiles(call, sums);
  HWY_DYNAMIC_DISPATCH(Multiply)(call, sums);
}

std::string_view multiply_codes_name(std::int64_t rows) {
  return use_tiles(rows) ? "quanta:gemm:amx" : "quanta:gemm";
}

void pack_columns(const CodeMatrix& matrix, std::uint8_t flip, std::int64_t begin,
                  std::int64_t count, std::int8_t* panels) {
  HWY_DYNAMIC_DISPATCH(PackColumns)(matrix, flip, begin, count, panels);
}

void pack_rows(const std::uint8_t* src, std::int64_t stride, std::int64_t count, std::int64_t depth,
               std::uint8_t flip, std::uint8_t* rows, std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(PackRows)(src, stride, count, depth, flip, rows, sums);
}

void sums_row_to_codes(const SumsToCodes& args, const std::int32_t* sums,
                       const std::int32_t* column_terms, std::int32_t row_term, std::int64_t count,
                       std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(SumsRowToCodes)(args, sums, column_terms, row_term, count, codes);
}

void sums_row_to_floats(float scale, const std::int32_t* sums, const std::int32_t* column_terms,
                        std::int32_t row_term, std::int64_t count, float* floats) {
  HWY_DYNAMIC_DISPATCH(SumsRowToFloats)(scale, sums, column_terms, row_term, count, floats);
}

void add_terms(const std::int32_t* sums, const std::int32_t* column_terms, std::int32_t row_term,
               std::int64_t count, std::int32_t* dst) {
  HWY_DYNAMIC_DISPATCH(AddTerms)(sums, column_terms, row_term, count, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
