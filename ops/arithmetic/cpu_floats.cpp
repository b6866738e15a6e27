#include <algorithm>
#include <limits>

#include "quanta/ops/cpu/elementwise_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/arithmetic/cpu_floats.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

// NaN fails every comparison and so passes through, as in torch.
inline float keep_nan_max(float x, float low) { return x < low ? low : x; }
inline float keep_nan_min(float x, float high) { return x > high ? high : x; }

template <FloatBinary kOp>
inline float apply(float lhs, float rhs) {
  if constexpr (kOp == FloatBinary::Add) return lhs + rhs;
  if constexpr (kOp == FloatBinary::Sub) return lhs - rhs;
  if constexpr (kOp == FloatBinary::Mul) return lhs * rhs;
  if constexpr (kOp == FloatBinary::Div) return lhs / rhs;
  if constexpr (kOp == FloatBinary::AddReLU) return keep_nan_max(lhs + rhs, 0.0F);
}

#if QUANTA_VECTORS
HWY_INLINE hn::Vec<FloatTag> vector_max(hn::Vec<FloatTag> x, hn::Vec<FloatTag> low) {
  return hn::IfThenElse(hn::Lt(x, low), low, x);
}
HWY_INLINE hn::Vec<FloatTag> vector_min(hn::Vec<FloatTag> x, hn::Vec<FloatTag> high) {
  return hn::IfThenElse(hn::Gt(x, high), high, x);
}

template <FloatBinary kOp>
HWY_INLINE hn::Vec<FloatTag> apply_vector(hn::Vec<FloatTag> lhs, hn::Vec<FloatTag> rhs) {
  if constexpr (kOp == FloatBinary::Add) return hn::Add(lhs, rhs);
  if constexpr (kOp == FloatBinary::Sub) return hn::Sub(lhs, rhs);
  if constexpr (kOp == FloatBinary::Mul) return hn::Mul(lhs, rhs);
  if constexpr (kOp == FloatBinary::Div) return hn::Div(lhs, rhs);
  if constexpr (kOp == FloatBinary::AddReLU) {
    return vector_max(hn::Add(lhs, rhs), hn::Zero(FloatTag()));
  }
}

template <FloatBinary kOp, bool kStreaming>
std::int64_t binary_vectors(const float* lhs, const float* rhs, float* dst, std::int64_t count,
                            Rhs kind) {
  const FloatTag d;
  std::int64_t i = 0;
  if (kind == Rhs::Scalar) {
    const auto one = hn::Set(d, *rhs);
    for (; i + kLanes <= count; i += kLanes) {
      put<kStreaming>(d, apply_vector<kOp>(hn::LoadU(d, lhs + i), one), dst + i);
    }
  } else {
    for (; i + kLanes <= count; i += kLanes) {
      put<kStreaming>(d, apply_vector<kOp>(hn::LoadU(d, lhs + i), hn::LoadU(d, rhs + i)), dst + i);
    }
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}

template <bool kStreaming>
std::int64_t clamp_vectors(const float* src, float* dst, std::int64_t count, float low,
                           float high) {
  const FloatTag d;
  const auto low_vector = hn::Set(d, low);
  const auto high_vector = hn::Set(d, high);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    put<kStreaming>(d, vector_min(vector_max(hn::LoadU(d, src + i), low_vector), high_vector),
                    dst + i);
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}
#endif

template <FloatBinary kOp>
void binary_row(const float* lhs, const float* rhs, float* dst, std::int64_t count, Rhs kind,
                Store store) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = store == Store::Streaming ? binary_vectors<kOp, true>(lhs, rhs, dst, count, kind)
                                : binary_vectors<kOp, false>(lhs, rhs, dst, count, kind);
#else
  static_cast<void>(store);
#endif
  const std::int64_t step = kind == Rhs::Row ? 1 : 0;
  for (; i < count; ++i) dst[i] = apply<kOp>(lhs[i], rhs[i * step]);
}

void binary(FloatBinary op, const float* lhs, const float* rhs, float* dst, std::int64_t count,
            Rhs kind, Store store) {
  switch (op) {
    case FloatBinary::Add:
      return binary_row<FloatBinary::Add>(lhs, rhs, dst, count, kind, store);
    case FloatBinary::Sub:
      return binary_row<FloatBinary::Sub>(lhs, rhs, dst, count, kind, store);
    case FloatBinary::Mul:
      return binary_row<FloatBinary::Mul>(lhs, rhs, dst, count, kind, store);
    case FloatBinary::Div:
      return binary_row<FloatBinary::Div>(lhs, rhs, dst, count, kind, store);
    case FloatBinary::AddReLU:
      return binary_row<FloatBinary::AddReLU>(lhs, rhs, dst, count, kind, store);
  }
}

void clamp_row(const float* src, float* dst, std::int64_t count, float low, float high,
               Store store) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = store == Store::Streaming ? clamp_vectors<true>(src, dst, count, low, high)
                                : clamp_vectors<false>(src, dst, count, low, high);
#else
  static_cast<void>(store);
#endif
  for (; i < count; ++i) dst[i] = keep_nan_min(keep_nan_max(src[i], low), high);
}

FloatRange range_row(const float* src, std::int64_t count) {
  float min = src[0];
  float max = src[0];
  bool has_nan = false;
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const FloatTag d;
  if (count >= kLanes) {
    auto min_vector = hn::LoadU(d, src);
    auto max_vector = min_vector;
    auto ordered = hn::Eq(min_vector, min_vector);
    for (i = kLanes; i + kLanes <= count; i += kLanes) {
      const auto x = hn::LoadU(d, src + i);
      ordered = hn::And(ordered, hn::Eq(x, x));
      min_vector = hn::Min(min_vector, x);
      max_vector = hn::Max(max_vector, x);
    }
    has_nan = !hn::AllTrue(d, ordered);
    min = hn::GetLane(hn::MinOfLanes(d, min_vector));
    max = hn::GetLane(hn::MaxOfLanes(d, max_vector));
  }
#endif
  for (; i < count; ++i) {
    has_nan = has_nan || src[i] != src[i];
    min = std::min(min, src[i]);
    max = std::max(max, src[i]);
  }
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  return has_nan ? FloatRange{kNaN, kNaN} : FloatRange{min, max};
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(binary);
HWY_EXPORT(clamp_row);
HWY_EXPORT(range_row);

void float_binary(FloatBinary op, const float* lhs, const float* rhs, float* dst,
                  std::int64_t count, Rhs kind, Store store) {
  HWY_DYNAMIC_DISPATCH(binary)(op, lhs, rhs, dst, count, kind, store);
}
void float_clamp(const float* src, float* dst, std::int64_t count, float low, float high,
                 Store store) {
  HWY_DYNAMIC_DISPATCH(clamp_row)(src, dst, count, low, high, store);
}
FloatRange float_range(const float* src, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(range_row)(src, count);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
