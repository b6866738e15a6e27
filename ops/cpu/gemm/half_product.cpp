#include "quanta/ops/cpu/gemm/half_product.h"

#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/half_product.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/ops/cpu/simd/target.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/half.h"

// Each output is the sum of the sums of kBlockDepth products each, one after the other, and each of
// those is summed by fused multiply-adds in the order of k. So every instruction set gives the same
// float, whatever is calculated beside it.

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

/// What of a group of panels fits into the L1 cache as floats.
inline constexpr std::int64_t kBlockDepth = 128;

#if !QUANTA_VECTORS

void multiply(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out) {
  const std::int64_t depth = call.in_features;
  const std::int64_t last = std::min(end * kHalfPanel, call.out_features);
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const float* x = call.x + row * depth;
    for (std::int64_t n = begin * kHalfPanel; n < last; ++n) {
      const std::uint16_t* weight =
          call.panels + n / kHalfPanel * depth * kHalfPanel + n % kHalfPanel;
      float sum = 0.0F;
      for (std::int64_t k = 0; k < depth;) {
        float block = 0.0F;
        for (const std::int64_t stop = std::min(k + kBlockDepth, depth); k < stop; ++k) {
          block = std::fmaf(x[k], math::float16_to_float(weight[k * kHalfPanel]), block);
        }
        sum += block;
      }
      if (call.bias != nullptr) sum += call.bias[n];
      out[row * call.out_features + n] = call.relu && !(sum > 0.0F) ? 0.0F : sum;
    }
  }
}

#else
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::FixedTag<float, kVectorBytes / 4>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
inline constexpr int kVectors = static_cast<int>(kHalfPanel) / kLanes;

// Weights as halves, or as the floats they stand for.
HWY_INLINE hn::Vec<FloatTag> load(const std::uint16_t* src) {
  return hn::PromoteTo(FloatTag(),
                       hn::LoadU(HalfTag(), reinterpret_cast<const hwy::float16_t*>(src)));
}
HWY_INLINE hn::Vec<FloatTag> load(const float* src) { return hn::LoadU(FloatTag(), src); }

/// A block of the sums: some rows, some panels from `panel` on, kBlockDepth or fewer k.
template <typename T>
struct Block {
  std::int64_t row, panel, first_k, depth;
  const T* weight;  ///< of `panel` and `first_k`; panels lie `stride` apart
  std::int64_t stride;
  const std::uint16_t* next = nullptr;  ///< halves that are wanted soon, panels as in the call
};

/// Adds the block's sums to what earlier blocks gave; the last one ends with the bias and relu.
struct Ending {
  bool first, last;
  HWY_INLINE hn::Vec<FloatTag> apply(const HalfProduct& call, hn::Vec<FloatTag> sum,
                                     hn::Vec<FloatTag> before, hn::Vec<FloatTag> bias) const {
    if (!first) sum = hn::Add(before, sum);
    if (last && call.bias != nullptr) sum = hn::Add(sum, bias);
    if (last && call.relu) sum = hn::Max(sum, hn::Zero(FloatTag()));
    return sum;
  }
};

/// The block of kRows rows and kCount panels.
template <int kRows, int kCount, typename T>
HWY_INLINE void multiply_block(const HalfProduct& call, const Block<T>& block, float* out) {
  constexpr int kWidth = kCount * kVectors;
  constexpr std::int64_t kPrefetch = 2048;  // see gemv_int8.cpp
  const float* x = call.x + block.row * call.in_features + block.first_k;
  hn::Vec<FloatTag> acc[kRows][kWidth];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) acc[r][v] = hn::Zero(FloatTag());
  }
  for (std::int64_t k = 0; k < block.depth; ++k) {
    hn::Vec<FloatTag> w[kWidth];
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      const T* at = block.weight + v / kVectors * block.stride + k * kHalfPanel;
      if constexpr (kRows == 1 && sizeof(T) == 2) {
        if (v % kVectors == 0) hwy::Prefetch(at + kPrefetch);
      }
      w[v] = load(at + v % kVectors * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto value = hn::Set(FloatTag(), x[r * call.in_features + k]);
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) acc[r][v] = hn::MulAdd(value, w[v], acc[r][v]);
    }
  }
  const Ending ending{block.first_k == 0, block.first_k + block.depth == call.in_features};
  const std::int64_t channel = block.panel * kHalfPanel;
  const bool whole = channel + kCount * kHalfPanel <= call.out_features;
  if (whole && !ending.last) {
    float* dst = out + block.row * call.out_features + channel;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r, dst += call.out_features) {
#pragma GCC unroll 8
      for (int v = 0; v < kWidth; ++v) {
        float* at = dst + v * kLanes;
        const auto sum = ending.first ? acc[r][v] : hn::Add(hn::LoadU(FloatTag(), at), acc[r][v]);
        hn::StoreU(sum, FloatTag(), at);
      }
    }
    return;
  }
  const float* bias = call.bias != nullptr ? call.bias + channel : nullptr;
#pragma GCC unroll 8
  for (int v = 0; v < kWidth; ++v) {
    const std::int64_t left =
        std::clamp<std::int64_t>(call.out_features - channel - v * kLanes, 0, kLanes);
    const auto mask = hn::FirstN(FloatTag(), static_cast<std::size_t>(left));
    const auto fetch = [&](const float* at) QUANTA_INLINED {
      return whole ? hn::LoadU(FloatTag(), at) : hn::MaskedLoad(mask, FloatTag(), at);
    };
    const auto added = bias != nullptr ? fetch(bias + v * kLanes) : hn::Zero(FloatTag());
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* dst = out + (block.row + r) * call.out_features + channel + v * kLanes;
      const auto before = ending.first ? hn::Zero(FloatTag()) : fetch(dst);
      const auto sum = ending.apply(call, acc[r][v], before, added);
      if (whole) {
        hn::StoreU(sum, FloatTag(), dst);
      } else {
        hn::BlendedStore(sum, mask, FloatTag(), dst);
      }
    }
  }
}

/// kRows rows of the block times its `count` panels, kCount at a time, then half as many and so on.
template <int kRows, int kCount, typename T>
void multiply_panels(const HalfProduct& call, Block<T> block, std::int64_t count, float* out) {
  for (; count >= kCount; count -= kCount) {
    multiply_block<kRows, kCount>(call, block, out);
    block.panel += kCount;
    block.weight += kCount * block.stride;
  }
  if constexpr (kCount > 1) multiply_panels<kRows, kCount / 2>(call, block, count, out);
}

/// Rows at a time with weights that are floats already: more sums are held, as no register is
/// needed to convert.
inline constexpr int kFloatRows = 6;

/// A share of the next halves, which come from memory while the products of these rows are taken.
HWY_INLINE void prefetch_share(const HalfProduct& call, const Block<float>& block,
                               std::int64_t count) {
  constexpr std::int64_t kLine = 32;  // halves
  const std::int64_t groups = ceil_div(call.rows, std::int64_t{kFloatRows});
  const std::int64_t lines = ceil_div(kBlockDepth * kHalfPanel / kLine, groups);
  const std::int64_t first = block.row / kFloatRows * lines * kLine;
  for (std::int64_t panel = 0; panel < count; ++panel) {
    const std::uint16_t* at = block.next + panel * call.in_features * kHalfPanel + first;
    for (std::int64_t line = 0; line < lines; ++line) __builtin_prefetch(at + line * kLine, 0, 2);
  }
}

/// The rows of the call from the block's on, kRows at a time; the rest fewer at a time.
template <int kRows, typename T>
void multiply_rows(const HalfProduct& call, Block<T> block, std::int64_t count, float* out) {
  for (; block.row + kRows <= call.rows; block.row += kRows) {
    if constexpr (kRows == kFloatRows && std::is_same_v<T, float>) {
      if (block.next != nullptr) prefetch_share(call, block, count);
    }
    multiply_panels<kRows, kBlocks.half_panels>(call, block, count, out);
  }
  if constexpr (kRows > 1) multiply_rows<kRows == 6 ? 4 : kRows / 2>(call, block, count, out);
}

/// Panels [panel, panel + count) of the block as floats.
void to_floats(const Block<std::uint16_t>& block, std::int64_t count, float* dst) {
  for (std::int64_t panel = 0; panel < count; ++panel) {
    const std::uint16_t* src = block.weight + panel * block.stride;
    for (std::int64_t i = 0; i < block.depth * kHalfPanel; i += kLanes) {
      hn::StoreU(load(src + i), FloatTag(), dst + panel * block.depth * kHalfPanel + i);
    }
  }
}

void multiply(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out) {
  // More than two groups of rows share one conversion.
  const bool converts = call.floats == nullptr && call.rows > 2 * kBlocks.half_rows;
  constexpr std::int64_t kConverted = 4;
  const std::int64_t step = call.rows == 1 ? kBlocks.half_panels_of_one
                            : converts     ? kConverted
                                           : kBlocks.half_panels;
  const std::int64_t stride = call.in_features * kHalfPanel;
  for (std::int64_t panel = begin; panel < end; panel += step) {
    const std::int64_t count = std::min(step, end - panel);
    for (std::int64_t k = 0; k < call.in_features; k += kBlockDepth) {
      const std::int64_t depth = std::min(kBlockDepth, call.in_features - k);
      const std::int64_t at = panel * stride + k * kHalfPanel;
      const Block<std::uint16_t> block{0, panel, k, depth, call.panels + at, stride};
      Block<float> floats{0, panel, k, depth, call.floats, stride};
      if (call.rows == 1) {
        multiply_panels<1, kBlocks.half_panels_of_one>(call, block, count, out);
      } else if (call.floats != nullptr) {
        floats.weight += at;
        multiply_rows<kFloatRows>(call, floats, count, out);
      } else if (!converts) {
        multiply_rows<kBlocks.half_rows>(call, block, count, out);
      } else {
        auto* converted = reinterpret_cast<float*>(onednn::thread_buffer(
            onednn::Buffer::Scratchpad,
            static_cast<std::size_t>(kConverted * kBlockDepth * kHalfPanel) * sizeof(float)));
        to_floats(block, count, converted);
        floats.weight = converted;
        if (k + kBlockDepth < call.in_features) {
          floats.next = call.panels + at + kBlockDepth * kHalfPanel;
        } else if (panel + step < end) {
          floats.next = call.panels + (panel + step) * stride;
        }
        floats.stride = depth * kHalfPanel;
        multiply_rows<kFloatRows>(call, floats, count, out);
      }
    }
  }
}

#endif  // !QUANTA_VECTORS

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(multiply);

void multiply_halves(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(multiply)(call, begin, end, out);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
