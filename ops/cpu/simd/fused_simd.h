// Private: x * y + z rounded once, inside Highway's foreach_target (hence the guard that toggles).

#if defined(QUANTA_OPS_CPU_FUSED_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_FUSED_SIMD_H_
#undef QUANTA_OPS_CPU_FUSED_SIMD_H_
#else
#define QUANTA_OPS_CPU_FUSED_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

/// x * y + z, the same on every target: those of highway.h have the instruction, plain code calls
/// the function.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fused_add(D d, V x, V y, V z) {
  namespace hn = hwy::HWY_NAMESPACE;
#if !QUANTA_VECTORS
  return hn::Set(d, std::fma(hn::GetLane(x), hn::GetLane(y), hn::GetLane(z)));
#else
  static_cast<void>(d);
  return hn::MulAdd(x, y, z);
#endif
}

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
