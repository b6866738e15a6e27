#include "quanta/ops/cpu/magnitude.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/magnitude.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/magnitude_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

float Largest(const float* src, std::int64_t count) { return largest(src, count); }

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(Largest);

float largest_magnitude(const float* src, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Largest)(src, count);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
