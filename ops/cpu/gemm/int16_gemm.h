// Private: products of int16 matrices summed in int32, inside Highway's foreach_target (hence the
// guard that toggles).
//
// A sum of pairs of products fits in int32 as long as |a|, |b| <= 255 and fewer than 33000 products
// are summed: more than any layer has; beyond it the sums wrap.

#if defined(QUANTA_OPS_CPU_INT16_GEMM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_INT16_GEMM_H_
#undef QUANTA_OPS_CPU_INT16_GEMM_H_
#else
#define QUANTA_OPS_CPU_INT16_GEMM_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "quanta/ops/cpu/gemm/panels.h"
#include "quanta/ops/cpu/simd/target.h"
#include "quanta/ops/cpu/simd/vnni_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

/// Rows of pairs times panels of kPanel columns.
struct GemmInput {
  const std::int16_t* rows;  ///< row r at r * row_stride; kRowSlack rows more can be read
  std::int64_t row_stride;
  const std::int16_t* panels;  ///< panel p at p * panel_stride, [pairs][kPanel][2]
  std::int64_t panel_stride;
};

inline constexpr std::int64_t kPanel = kPanelChannels;
inline constexpr std::int64_t kMaxPanels = kBlocks.pair_panels;
/// Pairs at a time: a strip of rows and the widest group of panels stay in the L1 cache.
inline constexpr std::int64_t kPairBlock = 128;

#if QUANTA_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

using SumTag = hn::FixedTag<std::int32_t, kVectorBytes / 4>;
using PairTag = hn::FixedTag<std::int16_t, kVectorBytes / 2>;
inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(SumTag()));
inline constexpr std::int64_t kVectorsOfPanel = kPanel / kLanes;

// How the products of neighbours are added to a sum.

/// vpdpwssd.
struct FusedPairs {
  static HWY_INLINE hn::Vec<SumTag> add(hn::Vec<SumTag> sum, hn::Vec<PairTag> a,
                                        hn::Vec<PairTag> b) {
    return add_word_products(sum, a, b);
  }
};

/// vpmaddwd and an addition.
struct SeparatePairs {
  static HWY_INLINE hn::Vec<SumTag> add(hn::Vec<SumTag> sum, hn::Vec<PairTag> a,
                                        hn::Vec<PairTag> b) {
    auto unused = hn::Zero(SumTag());
    sum = hn::ReorderWidenMulAccumulate(SumTag(), a, b, sum, unused);
    // Without this GCC does all products first and then has too few registers for sums.
    asm volatile("" : "+v"(sum.raw));
    return sum;
  }
};

/// sums[row][column] += products of `pairs` pairs; starts from 0 where `first`. Reads kRows rows.
template <class Product, int kRows, int kVectors>
HWY_INLINE void multiply_strip(const GemmInput& in, std::int64_t pairs, bool first,
                               std::int32_t* sums) {
  const SumTag di;
  const PairTag dp;
  hn::Vec<SumTag> acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = first ? hn::Zero(di) : hn::LoadU(di, sums + (r * kVectors + v) * kLanes);
    }
  }
  const std::int16_t* panel[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    panel[v] = in.panels + v / kVectorsOfPanel * in.panel_stride + v % kVectorsOfPanel * kLanes * 2;
  }
  for (std::int64_t k = 0; k < pairs; ++k) {
    hn::Vec<PairTag> b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = hn::LoadU(dp, panel[v] + k * kPanel * 2);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      std::int32_t pair;
      __builtin_memcpy(&pair, in.rows + r * in.row_stride + k * 2, sizeof(pair));
      const auto a = hn::BitCast(dp, hn::Set(di, pair));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = Product::add(acc[r][v], a, b[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], di, sums + (r * kVectors + v) * kLanes);
    }
  }
}

template <class Product, int kPanels>
HWY_NOINLINE void multiply_panels_of(const GemmInput& in, std::int64_t rows, std::int64_t pairs,
                                     std::int32_t* sums) {
  constexpr int kRows = kBlocks.pair_rows[kPanels];
  for (std::int64_t begin = 0; begin < pairs; begin += kPairBlock) {
    const std::int64_t block = std::min(kPairBlock, pairs - begin);
    for (std::int64_t row = 0; row < rows; row += kRows) {
      const GemmInput strip{in.rows + row * in.row_stride + begin * 2, in.row_stride,
                            in.panels + begin * kPanel * 2, in.panel_stride};
      multiply_strip<Product, kRows, kPanels* static_cast<int>(kVectorsOfPanel)>(
          strip, block, begin == 0, sums + row * kPanels * kPanel);
    }
  }
}

template <class Product, int kPanels>
void multiply_panels_up_to(const GemmInput& in, std::int64_t rows, std::int64_t panels,
                           std::int64_t pairs, std::int32_t* sums) {
  if constexpr (kPanels > 1) {
    if (panels < kPanels) {
      return multiply_panels_up_to<Product, kPanels - 1>(in, rows, panels, pairs, sums);
    }
  }
  multiply_panels_of<Product, kPanels>(in, rows, pairs, sums);
}

/// sums[row][panels * kPanel], for up to kMaxPanels panels. Reads and writes as many rows as fill
/// the last strip.
inline void multiply_panels(const GemmInput& in, std::int64_t rows, std::int64_t panels,
                            std::int64_t pairs, std::int32_t* sums) {
  if (features().has_dot_product(kCode)) {
    return multiply_panels_up_to<FusedPairs, kBlocks.pair_panels>(in, rows, panels, pairs, sums);
  }
  multiply_panels_up_to<SeparatePairs, kBlocks.pair_panels>(in, rows, panels, pairs, sums);
}

#else  // !QUANTA_VECTORS

inline void multiply_panels(const GemmInput& in, std::int64_t rows, std::int64_t /*panels*/,
                            std::int64_t pairs, std::int32_t* sums) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int16_t* a = in.rows + row * in.row_stride;
    std::int32_t* sum = sums + row * kPanel;
    std::fill_n(sum, kPanel, 0);
    for (std::int64_t k = 0; k < pairs; ++k) {
      const std::int16_t* b = in.panels + k * kPanel * 2;
      for (std::int64_t n = 0; n < kPanel; ++n) {
        sum[n] += a[2 * k] * b[2 * n] + a[2 * k + 1] * b[2 * n + 1];
      }
    }
  }
}

#endif

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
