// Private: sums over the lanes of four vectors at once, inside Highway's foreach_target (hence the
// guard that toggles). For vectors of 32 and 64 bytes of int32 or float.

#if defined(QUANTA_OPS_CPU_REDUCE_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_REDUCE_SIMD_H_
#undef QUANTA_OPS_CPU_REDUCE_SIMD_H_
#else
#define QUANTA_OPS_CPU_REDUCE_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

namespace hn = hwy::HWY_NAMESPACE;

/// Lanes of 8 or 16 to 8: lane i plus lane i + 8.
template <typename T>
HWY_INLINE hn::Vec256<T> fold_to_256(hn::Vec256<T> x) {
  return x;
}
#if QUANTA_AVX512
template <typename T>
HWY_INLINE hn::Vec256<T> fold_to_256(hn::Vec512<T> x) {
  const hn::FixedTag<T, 8> half;
  return hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x));
}
#endif

/// The sums of a's, b's, c's and d's lanes. For lanes l of each, after fold_to_256:
///   ((l0 + l2) + (l1 + l3)) + ((l4 + l6) + (l5 + l7))
template <class V>
HWY_INLINE auto sum_lanes_of_four(V a, V b, V c, V d) {
  using T = hn::TFromV<V>;
  const hn::FixedTag<T, 8> tag;
  const hn::FixedTag<std::uint64_t, 4> pairs;
  const hn::FixedTag<T, 4> quarter;
  const auto join = [&](auto x, auto y) QUANTA_INLINED {
    return hn::Add(hn::InterleaveLower(tag, x, y), hn::InterleaveUpper(tag, x, y));
  };
  const auto ab = hn::BitCast(pairs, join(fold_to_256(a), fold_to_256(b)));
  const auto cd = hn::BitCast(pairs, join(fold_to_256(c), fold_to_256(d)));
  const auto sums = hn::Add(hn::BitCast(tag, hn::InterleaveLower(pairs, ab, cd)),
                            hn::BitCast(tag, hn::InterleaveUpper(pairs, ab, cd)));
  return hn::Add(hn::LowerHalf(quarter, sums), hn::UpperHalf(quarter, sums));
}

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
