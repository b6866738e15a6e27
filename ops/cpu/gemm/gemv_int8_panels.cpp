#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/gemv_int8_panels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "quanta/ops/cpu/simd/int8_dot_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS

inline constexpr auto kBytes = static_cast<std::int64_t>(hn::MaxLanes(Codes()));
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Sums()));
inline constexpr int kVectors = static_cast<int>(kPanelChannels) / kLanes;
/// Panels that kRows rows are multiplied with at a time. One row is bound by memory: half the
/// registers are as many sums as a product's time wants.
template <int kRows>
inline constexpr int kPanels = std::min(kRows == 1 ? 8 / kVectors : 4,
                                        kBlocks.panel_sums / kRows / kVectors);

/// kRows rows times kCount panels.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_block(const PanelProduct& call, std::int64_t row, std::int64_t panel,
                               std::int32_t* sums) {
  constexpr int kWidth = kCount * kVectors;
  const std::int64_t groups = call.weight->groups();
  const std::int64_t panel_bytes = call.weight->panel_bytes();
  const std::int64_t channels = call.weight->out_features;
  const std::int8_t* weight = call.weight->panel(panel);
  const std::uint8_t* src = call.src + row * call.src_stride;
  constexpr std::int64_t kPrefetch = 1024;
  hn::Vec<Sums> acc[kRows][kWidth];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) acc[r][v] = hn::Zero(Sums());
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int8_t* at = weight + group * kPanelGroup;
    hn::Vec<Weights> w[kWidth];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      if (kRows == 1 && v * kBytes % 64 == 0) {
        hwy::Prefetch(at + v / kVectors * panel_bytes + v % kVectors * kBytes + kPrefetch);
      }
      w[v] = hn::LoadU(Weights(), at + v / kVectors * panel_bytes + v % kVectors * kBytes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      std::int32_t four;
      std::memcpy(&four, src + r * call.src_stride + group * kPanelDepth, sizeof(four));
      const auto x = Product::prepare(hn::BitCast(Codes(), hn::Set(Sums(), four)));
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) acc[r][v] = Product::add(acc[r][v], x, w[v]);
    }
  }
  const std::int64_t first = panel * kPanelChannels;
  const bool whole = first + kCount * kPanelChannels <= channels;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    std::int32_t* dst = sums + (row + r) * channels + first;
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      if (whole) {
        hn::StoreU(acc[r][v], Sums(), dst + v * kLanes);
      } else {
        const std::int64_t left =
            std::clamp<std::int64_t>(channels - first - v * kLanes, 0, kLanes);
        hn::BlendedStore(acc[r][v], hn::FirstN(Sums(), static_cast<std::size_t>(left)), Sums(),
                         dst + v * kLanes);
      }
    }
  }
}

/// kRows rows times the panels [begin, end), in groups of kCount, then of half as many and so on.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_panels(const PanelProduct& call, std::int64_t row, std::int64_t begin,
                                std::int64_t end, std::int32_t* sums) {
  std::int64_t panel = begin;
  for (; panel + kCount <= end; panel += kCount) {
    multiply_block<Product, kRows, kCount>(call, row, panel, sums);
  }
  if constexpr (kCount > 1) {
    multiply_panels<Product, kRows, kCount / 2>(call, row, panel, end, sums);
  }
}

/// Groups of kRows rows from `row` on, then those that are left in smaller ones.
template <class Product, int kRows>
HWY_INLINE void multiply_rows(const PanelProduct& call, std::int64_t row, std::int64_t begin,
                              std::int64_t end, std::int32_t* sums) {
  for (; row + kRows <= call.rows; row += kRows) {
    multiply_panels<Product, kRows, kPanels<kRows>>(call, row, begin, end, sums);
  }
  if constexpr (kRows > 1) multiply_rows<Product, kRows / 2>(call, row, begin, end, sums);
}

template <class Product>
void multiply(const PanelProduct& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  if (call.rows == 1) {
    return multiply_panels<Product, 1, kPanels<1>>(call, 0, begin, end, sums);
  }
  // A few panels stay in the L1 cache while all rows pass.
  constexpr std::int64_t kCached = 4;
  for (std::int64_t panel = begin; panel < end; panel += kCached) {
    multiply_rows<Product, kBlocks.panel_rows>(call, 0, panel, std::min(panel + kCached, end),
                                               sums);
  }
}

void gemv_panels(const PanelProduct& call, std::int64_t begin, std::int64_t end,
                 std::int32_t* sums) {
  with_product(call.code_bits,
               [&](auto product) { multiply<decltype(product)>(call, begin, end, sums); });
}

#else  // !QUANTA_VECTORS

void gemv_panels(const PanelProduct& call, std::int64_t begin, std::int64_t end,
                 std::int32_t* sums) {
  const std::int64_t channels = call.weight->out_features;
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      std::int32_t own[kPanelChannels] = {};
      add_panel_products(call.src + row * call.src_stride, *call.weight, panel, own);
      const std::int64_t first = panel * kPanelChannels;
      std::copy_n(own, std::min(kPanelChannels, channels - first), sums + row * channels + first);
    }
  }
}

#endif  // QUANTA_VECTORS

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(gemv_panels);

void gemv_int8_panels(const PanelProduct& call, std::int64_t begin, std::int64_t end,
                      std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(gemv_panels)(call, begin, end, sums);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
