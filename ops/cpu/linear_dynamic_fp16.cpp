#include "quanta/ops/cpu/highway.h"
#include "quanta/ops/cpu/linear_dynamic_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/linear_dynamic_fp16.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "quanta/ops/cpu/onednn.h"
#include "quanta/ops/cpu/reduce_simd.h"
#include "quanta/runtime/half.h"

// Each output is summed in kLanes partial sums, product k in number k % kLanes, by fused
// multiply-adds in the order of k; the partial sums are then added in the order of reduce_simd.h.
// So every instruction set gives the same float, whatever is calculated beside it.

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

inline constexpr int kLanes = 16;

/// One output, in plain code.
void multiply_one(const HalfProduct& call, std::int64_t row, std::int64_t n, float* out) {
  const float* x = call.x + row * call.in_features;
  const std::uint16_t* weight = call.weight + n * call.in_features;
  float partial[kLanes] = {};
  for (std::int64_t k = 0; k < call.in_features; ++k) {
    float& sum = partial[k % kLanes];
    sum = std::fmaf(x[k], math::float16_to_float(weight[k]), sum);
  }
  float folded[8];
  for (int i = 0; i < 8; ++i) folded[i] = partial[i] + partial[i + 8];
  const auto quarter = [&](int i) {
    return (folded[i] + folded[i + 2]) + (folded[i + 1] + folded[i + 3]);
  };
  float sum = quarter(0) + quarter(4);
  if (call.bias != nullptr) sum += call.bias[n];
  out[row * call.out_features + n] = call.relu && !(sum > 0.0F) ? 0.0F : sum;
}

void multiply_few(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out) {
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for (std::int64_t n = begin; n < end; ++n) multiply_one(call, row, n, out);
  }
}

#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX3
using FloatTag = hn::FixedTag<float, 16>;
inline constexpr int kMaxRows = 4;
#else
using FloatTag = hn::FixedTag<float, 8>;
inline constexpr int kMaxRows = 1;
#endif
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
inline constexpr int kWeightRows = 4;
inline constexpr int kVectors = kLanes / static_cast<int>(hn::MaxLanes(FloatTag()));
inline constexpr int kVectorLanes = kLanes / kVectors;

// Weights as halves, or as the floats they stand for.
HWY_INLINE hn::Vec<FloatTag> load(const std::uint16_t* src) {
  return hn::PromoteTo(FloatTag(),
                       hn::LoadU(HalfTag(), reinterpret_cast<const hwy::float16_t*>(src)));
}
HWY_INLINE hn::Vec<FloatTag> load(const float* src) { return hn::LoadU(FloatTag(), src); }

/// The last `count` elements of rows that are `stride` apart, each filled up to a step with zeros.
template <typename T>
HWY_INLINE void copy_rest(const T* src, std::int64_t stride, std::int64_t count, int rows, T* dst) {
  std::fill_n(dst, rows * kLanes, T{});
  for (int r = 0; r < rows; ++r) std::copy_n(src + r * stride, count, dst + r * kLanes);
}

void to_floats(const std::uint16_t* src, std::int64_t count, float* dst) {
  std::int64_t i = 0;
  for (; i + kVectorLanes <= count; i += kVectorLanes) {
    hn::StoreU(load(src + i), FloatTag(), dst + i);
  }
  for (; i < count; ++i) dst[i] = math::float16_to_float(src[i]);
}

/// Rows of x [rows, K] and of a part of the weight, and where their products go.
template <typename T>
struct Block {
  const float* x;
  const T* weight;
  float* out;
  const float* bias;  ///< null: 0
};

/// kRows rows times kWeightRows of the weight.
template <int kRows, typename T>
HWY_INLINE void multiply_block(const HalfProduct& call, const Block<T>& block) {
  constexpr std::int64_t kPrefetch = 4096 / sizeof(T);  // see gemv_int8.cpp
  const std::int64_t depth = call.in_features;
  hn::Vec<FloatTag> acc[kRows][kWeightRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kWeightRows; ++c) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[r][c][v] = hn::Zero(FloatTag());
    }
  }
  // Whole steps, then a copy of what is left, as in gemv_int8.cpp.
  struct Part {
    const float* x;
    const T* weight;
    std::int64_t stride, length;
  };
  float x_rest[kRows * kLanes];
  T weight_rest[kWeightRows * kLanes];
  const std::int64_t whole = depth / kLanes * kLanes;
  if (whole < depth) {
    copy_rest(block.x + whole, depth, depth - whole, kRows, x_rest);
    copy_rest(block.weight + whole, depth, depth - whole, kWeightRows, weight_rest);
  }
  for (const Part& part : {Part{block.x, block.weight, depth, whole},
                           Part{x_rest, weight_rest, kLanes, depth - whole}}) {
    for (std::int64_t step = 0; step < part.length; step += kLanes) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t k = step + v * kVectorLanes;
        hn::Vec<FloatTag> w[kWeightRows];
#pragma GCC unroll 4
        for (int c = 0; c < kWeightRows; ++c) {
          if constexpr (kRows == 1) hwy::Prefetch(part.weight + c * part.stride + k + kPrefetch);
          w[c] = load(part.weight + c * part.stride + k);
        }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const auto x = hn::LoadU(FloatTag(), part.x + r * part.stride + k);
#pragma GCC unroll 4
          for (int c = 0; c < kWeightRows; ++c) acc[r][c][v] = hn::MulAdd(x, w[c], acc[r][c][v]);
        }
      }
    }
  }
  const hn::FixedTag<float, 4> four;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kVectors == 2) {
#pragma GCC unroll 4
      for (int c = 0; c < kWeightRows; ++c) acc[r][c][0] = hn::Add(acc[r][c][0], acc[r][c][1]);
    }
    auto sums = sum_lanes_of_four(acc[r][0][0], acc[r][1][0], acc[r][2][0], acc[r][3][0]);
    if (block.bias != nullptr) sums = hn::Add(sums, hn::LoadU(four, block.bias));
    if (call.relu) sums = hn::Max(sums, hn::Zero(four));
    hn::StoreU(sums, four, block.out + r * call.out_features);
  }
}

/// All rows times the part [begin, end) of the weight, which starts at `weight`.
template <typename T>
void multiply_part(const HalfProduct& call, const T* weight, std::int64_t begin, std::int64_t end,
                   float* out) {
  const auto rows_from = [&](auto rows, std::int64_t row) HWY_ATTR {
    // The last group of the weight's rows is moved back.
    for (std::int64_t n = begin; n < end; n += kWeightRows) {
      const std::int64_t at = std::min(n, end - kWeightRows);
      multiply_block<rows()>(
          call, Block<T>{call.x + row * call.in_features, weight + (at - begin) * call.in_features,
                         out + row * call.out_features + at,
                         call.bias != nullptr ? call.bias + at : nullptr});
    }
  };
  std::int64_t row = 0;
  for (; row + kMaxRows <= call.rows; row += kMaxRows) {
    rows_from(std::integral_constant<int, kMaxRows>(), row);
  }
  if constexpr (kMaxRows > 2) {
    if (row + 2 <= call.rows) {
      rows_from(std::integral_constant<int, 2>(), row);
      row += 2;
    }
  }
  for (; row < call.rows; ++row) rows_from(std::integral_constant<int, 1>(), row);
}

void multiply(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out) {
  if (end - begin < kWeightRows) return multiply_few(call, begin, end, out);
  const std::int64_t depth = call.in_features;
  // One row reads all of the weight once. With more a part of it stays in the L1 cache while they
  // pass; when they are many it is converted first.
  constexpr std::int64_t kManyRows = 4 * kMaxRows;
  constexpr std::int64_t kCached = 8192;
  const std::int64_t part =
      call.rows == 1 ? end - begin
                     : std::max<std::int64_t>(kCached / depth / kWeightRows, 1) * kWeightRows;
  for (std::int64_t first = begin; first < end; first += part) {
    const std::int64_t last = std::min(first + part, end);
    // The last part may be smaller than a group, which then starts in the one before.
    const std::int64_t from = std::min(first, last - kWeightRows);
    const std::uint16_t* weight = call.weight + from * depth;
    if (call.rows < kManyRows) {
      multiply_part(call, weight, from, last, out);
      continue;
    }
    const std::int64_t count = (last - from) * depth;
    auto* floats = reinterpret_cast<float*>(onednn::thread_buffer(
        onednn::Buffer::Scratchpad, static_cast<std::size_t>(count) * sizeof(float)));
    to_floats(weight, count, floats);
    multiply_part(call, floats, from, last, out);
  }
}

#else

void multiply(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out) {
  multiply_few(call, begin, end, out);
}

#endif  // HWY_TARGET != HWY_SCALAR

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
