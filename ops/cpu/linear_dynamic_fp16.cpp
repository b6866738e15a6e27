#include "quanta/ops/cpu/highway.h"
#include "quanta/ops/cpu/linear_dynamic_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/linear_dynamic_fp16.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

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

HWY_INLINE hn::Vec<FloatTag> load_half(const std::uint16_t* src) {
  return hn::PromoteTo(FloatTag(),
                       hn::LoadU(HalfTag(), reinterpret_cast<const hwy::float16_t*>(src)));
}

/// The partial sums of one output.
struct Partial {
  hn::Vec<FloatTag> vectors[kVectors];

  HWY_INLINE auto folded() const {
    if constexpr (kVectors == 1) {
      return vectors[0];
    } else {
      return hn::Add(vectors[0], vectors[1]);
    }
  }
};

/// One step: kLanes products for each of kRows x kWeightRows outputs.
template <int kRows>
HWY_INLINE void add_products(const float* x, std::int64_t x_stride, const std::uint16_t* weight,
                             std::int64_t weight_stride, Partial (&acc)[kRows][kWeightRows]) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    hn::Vec<FloatTag> w[kWeightRows];
#pragma GCC unroll 4
    for (int c = 0; c < kWeightRows; ++c) {
      w[c] = load_half(weight + c * weight_stride + v * kVectorLanes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto values = hn::LoadU(FloatTag(), x + r * x_stride + v * kVectorLanes);
#pragma GCC unroll 4
      for (int c = 0; c < kWeightRows; ++c) {
        acc[r][c].vectors[v] = hn::MulAdd(values, w[c], acc[r][c].vectors[v]);
      }
    }
  }
}

/// `count` elements of rows that are `stride` apart, side by side and filled up with zeros.
template <typename T>
HWY_INLINE void copy_tails(const T* src, std::int64_t stride, std::int64_t count, int rows,
                           T* dst) {
  for (int r = 0; r < rows; ++r) {
    std::memcpy(dst + r * kLanes, src + r * stride, static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// kRows rows times kWeightRows of the weight.
template <int kRows>
HWY_INLINE void multiply_block(const HalfProduct& call, std::int64_t row, std::int64_t n,
                               float* out) {
  constexpr std::int64_t kPrefetch = 2048;  // elements; see gemv_int8.cpp
  const std::int64_t depth = call.in_features;
  const float* x = call.x + row * depth;
  const std::uint16_t* weight = call.weight + n * depth;
  Partial acc[kRows][kWeightRows];
  for (auto& of_row : acc) {
    for (Partial& sum : of_row) {
      for (auto& vector : sum.vectors) vector = hn::Zero(FloatTag());
    }
  }
  std::int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    if constexpr (kRows == 1) {
      for (int c = 0; c < kWeightRows; ++c) hwy::Prefetch(weight + c * depth + k + kPrefetch);
    }
    add_products<kRows>(x + k, depth, weight + k, depth, acc);
  }
  if (k < depth) {
    float x_tails[kRows * kLanes] = {};
    std::uint16_t weight_tails[kWeightRows * kLanes] = {};
    copy_tails(x + k, depth, depth - k, kRows, x_tails);
    copy_tails(weight + k, depth, depth - k, kWeightRows, weight_tails);
    add_products<kRows>(x_tails, kLanes, weight_tails, kLanes, acc);
  }
  const hn::FixedTag<float, 4> four;
  for (int r = 0; r < kRows; ++r) {
    auto sums = sum_lanes_of_four(acc[r][0].folded(), acc[r][1].folded(), acc[r][2].folded(),
                                  acc[r][3].folded());
    if (call.bias != nullptr) sums = hn::Add(sums, hn::LoadU(four, call.bias + n));
    if (call.relu) sums = hn::Max(sums, hn::Zero(four));
    hn::StoreU(sums, four, out + (row + r) * call.out_features + n);
  }
}

/// kRows rows times [begin, end) of the weight, kWeightRows at a time; the last group is moved back.
template <int kRows>
HWY_INLINE void multiply_rows(const HalfProduct& call, std::int64_t row, std::int64_t begin,
                              std::int64_t end, float* out) {
  for (std::int64_t n = begin; n < end; n += kWeightRows) {
    multiply_block<kRows>(call, row, std::min(n, end - kWeightRows), out);
  }
}

void multiply(const HalfProduct& call, std::int64_t begin, std::int64_t end, float* out) {
  if (end - begin < kWeightRows) return multiply_few(call, begin, end, out);
  // A part of the weight stays in the L1 cache while all rows pass.
  constexpr std::int64_t kCached = 8192;
  const std::int64_t part =
      std::max<std::int64_t>(kCached / call.in_features / kWeightRows, 1) * kWeightRows;
  for (std::int64_t first = begin; first < end; first += part) {
    const std::int64_t last = std::min(first + part, end);
    // The last part may be smaller than a group, which then starts in the one before.
    const std::int64_t from = std::min(first, last - kWeightRows);
    std::int64_t row = 0;
    if constexpr (kMaxRows > 1) {
      for (; row + kMaxRows <= call.rows; row += kMaxRows) {
        multiply_rows<kMaxRows>(call, row, from, last, out);
      }
    }
    for (; row < call.rows; ++row) multiply_rows<1>(call, row, from, last, out);
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
