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
#include "quanta/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

/// Rows that are multiplied at a time, and registers for their sums.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kMaxRows = 8;
inline constexpr int kSumRegisters = 16;
#else
inline constexpr int kMaxRows = 4;
inline constexpr int kSumRegisters = 8;
#endif
inline constexpr auto kBytes = static_cast<std::int64_t>(hn::MaxLanes(Codes()));
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Sums()));
inline constexpr int kVectors = static_cast<int>(kPanelChannels) / kLanes;
/// Panels that kRows rows are multiplied with at a time. One row is bound by memory: half the
/// registers are as many sums as a product's time wants.
template <int kRows>
inline constexpr int kPanels = std::min(kRows == 1 ? 8 / kVectors : 4,
                                        kSumRegisters / kRows / kVectors);

/// kRows rows times kCount panels.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_block(const GemvInt8& call, std::int64_t row, std::int64_t panel,
                               std::int32_t* sums) {
  constexpr int kWidth = kCount * kVectors;
  const std::int64_t groups = (call.in_features + kPanelDepth - 1) / kPanelDepth;
  const std::int64_t panel_bytes = groups * kPanelChannels * kPanelDepth;
  const std::int8_t* weight = call.weight + panel * panel_bytes;
  const std::uint8_t* src = call.src + row * call.src_stride;
  constexpr std::int64_t kPrefetch = 1024;
  hn::Vec<Sums> acc[kRows][kWidth];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) acc[r][v] = hn::Zero(Sums());
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int8_t* at = weight + group * kPanelChannels * kPanelDepth;
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
  const bool whole = first + kCount * kPanelChannels <= call.out_features;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    std::int32_t* dst = sums + (row + r) * call.out_features + first;
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      if (whole) {
        hn::StoreU(acc[r][v], Sums(), dst + v * kLanes);
      } else {
        const std::int64_t left =
            std::clamp<std::int64_t>(call.out_features - first - v * kLanes, 0, kLanes);
        hn::BlendedStore(acc[r][v], hn::FirstN(Sums(), static_cast<std::size_t>(left)), Sums(),
                         dst + v * kLanes);
      }
    }
  }
}

/// kRows rows times the panels [begin, end), in groups of kCount, then of half as many and so on.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_panels(const GemvInt8& call, std::int64_t row, std::int64_t begin,
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
HWY_INLINE void multiply_rows(const GemvInt8& call, std::int64_t row, std::int64_t begin,
                              std::int64_t end, std::int32_t* sums) {
  for (; row + kRows <= call.rows; row += kRows) {
    multiply_panels<Product, kRows, kPanels<kRows>>(call, row, begin, end, sums);
  }
  if constexpr (kRows > 1) multiply_rows<Product, kRows / 2>(call, row, begin, end, sums);
}

template <class Product>
void multiply(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  if (call.rows == 1) {
    return multiply_panels<Product, 1, kPanels<1>>(call, 0, begin, end, sums);
  }
  // A few panels stay in the L1 cache while all rows pass.
  constexpr std::int64_t kCached = 4;
  for (std::int64_t panel = begin; panel < end; panel += kCached) {
    multiply_rows<Product, kMaxRows>(call, 0, panel, std::min(panel + kCached, end), sums);
  }
}

void gemv_panels(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  if (has_dot_product(call.vnni)) return multiply<Vnni>(call, begin, end, sums);
  if (call.code_bits == CodeBits::Seven) return multiply<Pairs>(call, begin, end, sums);
  multiply<Wide>(call, begin, end, sums);
}

#else  // HWY_TARGET == HWY_SCALAR

void gemv_panels(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  const std::int64_t groups = (call.in_features + kPanelDepth - 1) / kPanelDepth;
  const std::int64_t last = std::min(end * kPanelChannels, call.out_features);
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const std::uint8_t* src = call.src + row * call.src_stride;
    for (std::int64_t n = begin * kPanelChannels; n < last; ++n) {
      const std::int8_t* panel =
          call.weight + n / kPanelChannels * groups * kPanelChannels * kPanelDepth;
      const std::int8_t* weight = panel + n % kPanelChannels * kPanelDepth;
      std::uint32_t sum = 0;
      for (std::int64_t k = 0; k < call.in_features; ++k) {
        const std::int64_t group = k / kPanelDepth * kPanelChannels * kPanelDepth;
        sum += static_cast<std::uint32_t>(src[k] * weight[group + k % kPanelDepth]);
      }
      sums[row * call.out_features + n] = static_cast<std::int32_t>(sum);
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(gemv_panels);

void gemv_int8_panels(const GemvInt8& call, std::int64_t begin, std::int64_t end,
                      std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(gemv_panels)(call, begin, end, sums);
}

Tensor int8_panels(const std::int8_t* weight, std::int64_t out_features, std::int64_t in_features) {
  // For a thread: a few hundredths of a millisecond.
  constexpr std::int64_t kGrainBytes = std::int64_t{256} * 1024;
  const std::int64_t count = (out_features + kPanelChannels - 1) / kPanelChannels;
  const std::int64_t groups = (in_features + kPanelDepth - 1) / kPanelDepth;
  Tensor panels = Tensor::zeros({count, groups, kPanelChannels, kPanelDepth}, DType::Int8);
  auto* dst = static_cast<std::int8_t*>(panels.data_ptr());
  const std::int64_t whole = in_features / kPanelDepth;
  const auto rest = static_cast<std::size_t>(in_features % kPanelDepth);
  parallel_for(count, kGrainBytes / (groups * kPanelChannels * kPanelDepth) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t last = std::min(end * kPanelChannels, out_features);
                 for (std::int64_t n = begin * kPanelChannels; n < last; ++n) {
                   const std::int8_t* src = weight + n * in_features;
                   const std::int64_t first = n / kPanelChannels * groups * kPanelChannels;
                   std::int8_t* to = dst + (first + n % kPanelChannels) * kPanelDepth;
                   for (std::int64_t group = 0; group < whole; ++group) {
                     std::memcpy(to, src, kPanelDepth);
                     src += kPanelDepth;
                     to += kPanelChannels * kPanelDepth;
                   }
                   if (rest > 0) std::memcpy(to, src, rest);
                 }
               });
  return panels;
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
