// Private: the largest magnitude of neighbouring floats, inside Highway's foreach_target (hence the
// guard that toggles).

#if defined(QUANTA_OPS_CPU_MAGNITUDE_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_MAGNITUDE_SIMD_H_
#undef QUANTA_OPS_CPU_MAGNITUDE_SIMD_H_
#else
#define QUANTA_OPS_CPU_MAGNITUDE_SIMD_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "quanta/ops/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

/// The largest magnitude; NaN if there is one. Magnitudes are compared as integers, in the same
/// order and with NaN above all.
inline float largest(const float* src, std::int64_t count) {
  std::int32_t result = 0;
  std::int64_t i = 0;
#if QUANTA_VECTORS
  if (count >= kLanes) {
    const IntTag d;
    auto lanes = hn::Zero(d);
    for (; i + kLanes <= count; i += kLanes) {
      lanes = hn::Max(lanes, hn::BitCast(d, hn::Abs(hn::LoadU(FloatTag(), src + i))));
    }
    result = hn::GetLane(hn::MaxOfLanes(d, lanes));
  }
#endif
  for (; i < count; ++i) result = std::max(result, std::bit_cast<std::int32_t>(std::fabs(src[i])));
  return std::bit_cast<float>(result);
}

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
