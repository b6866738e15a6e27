#include "quanta/ops/cpu/gemm/gemm_int8.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/gemm_int8.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "quanta/ops/cpu/gemm/int8_kernel.h"
#include "quanta/ops/cpu/simd/code_rows_simd.h"
#include "quanta/ops/cpu/simd/gelu_simd.h"
#include "quanta/ops/cpu/simd/int8_dot_simd.h"
#include "quanta/runtime/detail/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, kPanelChannels>;
using Integers = hn::RebindToSigned<Floats>;
inline constexpr auto kFloatLanes = static_cast<std::int64_t>(hn::MaxLanes(Floats()));

/// What is the same for all rows of a vector of channels.
struct ColumnTerms {
  hn::Vec<Integers> shift;
  hn::Vec<Floats> scale, bias;
};

HWY_INLINE ColumnTerms terms_at(const SumsToFloats& args, const std::int32_t* sums,
                                const float* scales, const float* bias) {
  const Floats d;
  const Integers di;
  return {hn::Mul(hn::Set(di, args.src_zero_point), hn::LoadU(di, sums)),
          hn::Mul(hn::Set(d, args.src_scale), hn::LoadU(d, scales)),
          bias != nullptr ? hn::LoadU(d, bias) : hn::Zero(d)};
}

/// The terms of fewer channels than a vector has.
HWY_NOINLINE ColumnTerms last_terms(const SumsToFloats& args, std::int64_t n, std::int64_t count) {
  float scales[kFloatLanes] = {};
  std::int32_t sums[kFloatLanes] = {};
  float bias[kFloatLanes] = {};
  std::copy_n(args.scales + n, count, scales);
  std::copy_n(args.weight_sums + n, count, sums);
  if (args.bias != nullptr) std::copy_n(args.bias + n, count, bias);
  return terms_at(args, sums, scales, bias);
}

template <GemmEnd kEnd, bool kBias>
HWY_INLINE hn::Vec<Floats> float_of(hn::Vec<Integers> sum, const ColumnTerms& terms) {
  const Floats d;
  auto y = hn::Mul(hn::ConvertTo(d, hn::Sub(sum, terms.shift)), terms.scale);
  // Without a bias nothing is added: -0 would become 0.
  if constexpr (kBias) y = hn::Add(y, terms.bias);
  // NaN stays, and so does -0, as in relu.
  if constexpr (kEnd == GemmEnd::ReLU) y = hn::IfThenElse(hn::Lt(y, hn::Zero(d)), hn::Zero(d), y);
  if constexpr (kEnd == GemmEnd::Gelu) y = gelu_erf(d, y);
  return y;
}

/// Rows of a column of a block, as many channels as a vector has.
template <GemmEnd kEnd, bool kBias, bool kAdd>
HWY_INLINE void floats_of_column(const SumBlock& block, const GemmOutput& output,
                                 std::int64_t channels, std::int64_t column) {
  const Floats d;
  const Integers di;
  const SumsToFloats& args = output.terms;
  const std::int64_t n = block.channel + column;
  const ColumnTerms terms =
      terms_at(args, args.weight_sums + n, args.scales + n, kBias ? args.bias + n : nullptr);
  const std::int32_t* HWY_RESTRICT sums = block.sums + column;
  const float* addend = kAdd ? output.addend + block.row * channels + n : nullptr;
  float* dst = output.dst + block.row * channels + n;
  for (std::int64_t r = 0; r < block.rows; ++r, sums += block.stride, dst += channels) {
    auto y = float_of<kEnd, kBias>(hn::LoadU(di, sums), terms);
    if constexpr (kAdd) {
      y = hn::Add(y, hn::LoadU(d, addend));
      addend += channels;
    }
    hn::StoreU(y, d, dst);
  }
}

/// Rows of a column of a block with fewer channels than a vector has.
template <GemmEnd kEnd, bool kBias>
HWY_NOINLINE void floats_of_rest(const SumBlock& block, const GemmOutput& output,
                                 std::int64_t channels, std::int64_t column) {
  const std::int64_t n = block.channel + column;
  const std::int64_t count = block.columns - column;
  const ColumnTerms terms = last_terms(output.terms, n, count);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    std::int32_t sums[kFloatLanes] = {};
    std::copy_n(block.sums + r * block.stride + column, count, sums);
    float rest[kFloatLanes];
    hn::StoreU(float_of<kEnd, kBias>(hn::LoadU(Integers(), sums), terms), Floats(), rest);
    const std::int64_t at = (block.row + r) * channels + n;
    for (std::int64_t i = 0; i < count; ++i) {
      output.dst[at + i] = output.addend != nullptr ? rest[i] + output.addend[at + i] : rest[i];
    }
  }
}

template <GemmEnd kEnd, bool kBias>
HWY_INLINE void floats_of_columns(const SumBlock& block, const GemmOutput& output,
                                  std::int64_t channels) {
  std::int64_t column = 0;
  for (; column + kFloatLanes <= block.columns; column += kFloatLanes) {
    if (output.addend != nullptr) {
      floats_of_column<kEnd, kBias, true>(block, output, channels, column);
    } else {
      floats_of_column<kEnd, kBias, false>(block, output, channels, column);
    }
  }
  if (column < block.columns) floats_of_rest<kEnd, kBias>(block, output, channels, column);
}

template <GemmEnd kEnd>
HWY_INLINE void floats_with_end(const SumBlock& block, const GemmOutput& output,
                                std::int64_t channels) {
  if (output.terms.bias != nullptr) {
    floats_of_columns<kEnd, true>(block, output, channels);
  } else {
    floats_of_columns<kEnd, false>(block, output, channels);
  }
}

void write_floats(const SumBlock& block, const GemmOutput& output, std::int64_t channels) {
  switch (output.end) {
    case GemmEnd::None:
      return floats_with_end<GemmEnd::None>(block, output, channels);
    case GemmEnd::ReLU:
      return floats_with_end<GemmEnd::ReLU>(block, output, channels);
    case GemmEnd::Gelu:
      return floats_with_end<GemmEnd::Gelu>(block, output, channels);
  }
}

/// Joins `range` with the floats of a block that have just been written.
void add_range(const SumBlock& block, const float* floats, std::int64_t channels,
               RangeLanes& range) {
  const Floats d;
  const auto zero = hn::Zero(d);
  auto least = hn::Load(d, range.min);
  auto most = hn::Load(d, range.max);
  auto nothing = hn::Load(d, range.finite);
  std::int64_t column = 0;
  for (; column + kFloatLanes <= block.columns; column += kFloatLanes) {
    const float* at = floats + block.row * channels + block.channel + column;
    for (std::int64_t r = 0; r < block.rows; ++r, at += channels) {
      const auto y = hn::LoadU(d, at);
      least = hn::Min(least, y);
      most = hn::Max(most, y);
      nothing = hn::MulAdd(y, zero, nothing);
    }
  }
  hn::Store(least, d, range.min);
  hn::Store(most, d, range.max);
  hn::Store(nothing, d, range.finite);
  for (; column < block.columns; ++column) {
    const float* at = floats + block.row * channels + block.channel + column;
    for (std::int64_t r = 0; r < block.rows; ++r, at += channels) {
      range.min[0] = std::min(range.min[0], *at);
      range.max[0] = std::max(range.max[0], *at);
      range.finite[0] += *at * 0.0F;
    }
  }
}

void FloatsOfBlock(const SumBlock& block, const GemmOutput& output, std::int64_t channels) {
  write_floats(block, output, channels);
  if (output.range != nullptr) add_range(block, output.dst, channels, *output.range);
}

#if QUANTA_VECTORS

/// Panels that are multiplied together, and the sums of a row of them.
inline constexpr std::int64_t kSimdPanels = kBlocks.gemm_int8_panels;
inline constexpr std::int64_t kBlockColumns = kSimdPanels * kPanelChannels;
inline constexpr auto kBytes = static_cast<std::int64_t>(kVectorBytes);
inline constexpr int kSumLanes = static_cast<int>(hn::MaxLanes(Sums()));
inline constexpr int kVectorsOfPanel = static_cast<int>(kPanelChannels) / kSumLanes;

/// What a block asks for on the way, with every few steps.
struct AskedFor {
  const std::int8_t* panels;  ///< a line of the next panels
  const float* results;       ///< where the block's results go, row after row
  std::int64_t result_stride;
};

/// kRows rows times kCount panels.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_block(const PanelProduct& call, std::int64_t row, std::int64_t panel,
                               AskedFor next, std::int32_t* HWY_RESTRICT sums) {
  constexpr int kWidth = kCount * kVectorsOfPanel;
  const std::int64_t panel_bytes = call.weight->panel_bytes();
  const std::int8_t* weight = call.weight->panel(panel);
  RowPointers<kRows> src(call.src + row * call.src_stride, call.src_stride);
  hn::Vec<Sums> acc[kRows][kWidth];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) acc[r][v] = hn::Zero(Sums());
  }
  constexpr bool kAsks = kRows == kBlocks.gemm_int8_rows && DenseRowsAhead<kRows>::kPays;
  DenseRowsAhead<kRows> rows_ahead(call.src + row * call.src_stride, call.src_stride, true);
  std::int64_t result_rows = kRows;
  const auto ask = [&] QUANTA_INLINED {
    __builtin_prefetch(next.panels, 0, 2);
    next.panels += 64;
    if constexpr (kAsks) {
      rows_ahead.fetch();
      // Stores go to memory one after the other, and each would wait for its line.
#pragma GCC unroll 4
      for (int line = 0; line < kCount; ++line) __builtin_prefetch(next.results + line * 16, 1, 2);
      next.results += --result_rows > 0 ? next.result_stride : 0;
    }
  };
  add_groups<Product>(src, call.weight->groups(), weight, panel_bytes, acc, ask);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      hn::StoreU(acc[r][v], Sums(), sums + r * kBlockColumns + v * kSumLanes);
    }
  }
}

/// Groups of kRows rows from `row` on, then those that are left in smaller ones.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_rows(const PanelProduct& call, const GemmOutput& output, std::int64_t row,
                              std::int64_t panel) {
  alignas(64) std::int32_t sums[kRows * kBlockColumns];
  const std::int64_t channel = panel * kPanelChannels;
  const std::int64_t channels = call.weight->out_features;
  const std::int64_t columns = std::min(kCount * kPanelChannels, channels - channel);
  // Each block asks for a part of the next panels, so that all blocks together ask for all of it.
  const std::int64_t panel_bytes = call.weight->panel_bytes();
  const std::int8_t* next = call.weight->panel(panel + kCount);
  for (; row + kRows <= call.rows; row += kRows) {
    const AskedFor asked{next + row * panel_bytes / kRows / 4,
                         output.dst + row * channels + channel, channels};
    multiply_block<Product, kRows, kCount>(call, row, panel, asked, sums);
    FloatsOfBlock({sums, kBlockColumns, row, kRows, channel, columns}, output, channels);
  }
  if constexpr (kRows > 1) {
    multiply_rows<Product, fewer_rows(kRows), kCount>(call, output, row, panel);
  }
}

/// The rows of a block: its sums and one operand fit into the registers, and products that are made
/// of several instructions want some for themselves.
template <class Product>
inline constexpr int kRowsWith = std::is_same_v<Product, Vnni>
                                     ? kBlocks.gemm_int8_rows
                                     : std::min(kBlocks.gemm_int8_rows, 8);

template <class Product>
void multiply(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
              std::int64_t end) {
  // The panels stay in the L1 cache while all rows pass.
  std::int64_t panel = begin;
  for (; panel + kSimdPanels <= end; panel += kSimdPanels) {
    multiply_rows<Product, kRowsWith<Product>, kSimdPanels>(call, output, 0, panel);
  }
  for (; panel < end; ++panel) {
    multiply_rows<Product, kRowsWith<Product>, 1>(call, output, 0, panel);
  }
}

void GemmInt8(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
              std::int64_t end) {
  with_product(call.code_bits,
               [&](auto product) { multiply<decltype(product)>(call, output, begin, end); });
}

#else  // !QUANTA_VECTORS

void GemmInt8(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
              std::int64_t end) {
  const std::int64_t channels = call.weight->out_features;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::int64_t channel = panel * kPanelChannels;
    for (std::int64_t row = 0; row < call.rows; ++row) {
      std::int32_t sums[kPanelChannels] = {};
      add_panel_products(call.src + row * call.src_stride, *call.weight, panel, sums);
      FloatsOfBlock(
          {sums, kPanelChannels, row, 1, channel, std::min(kPanelChannels, channels - channel)},
          output, channels);
    }
  }
}

#endif  // QUANTA_VECTORS

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(FloatsOfBlock);
HWY_EXPORT(GemmInt8);

namespace {
bool use_tiles(const PanelProduct& call) {
  return gemm_int8_uses_tiles(call.rows, call.weight->in_features);
}
}  // namespace

void floats_of_block(const SumBlock& block, const GemmOutput& output, std::int64_t channels) {
  HWY_DYNAMIC_DISPATCH(FloatsOfBlock)(block, output, channels);
}

void gemm_int8_simd(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
                    std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(GemmInt8)(call, output, begin, end);
}

void gemm_int8(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
               std::int64_t end) {
  if (use_tiles(call)) return gemm_int8_tiles(call, output, begin, end);
  gemm_int8_simd(call, output, begin, end);
}

std::string_view gemm_int8_name(const PanelProduct& call) {
  return use_tiles(call) ? "quanta:gemm:amx" : "quanta:gemm";
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
