// Private: what the kernel files share inside Highway's foreach_target. Like Highway's own -inl.h
// headers it is included once for each target, hence the guard that toggles.
//
// The targets (highway.h) are AVX2 and up, which all have FMA, and plain code (HWY_SCALAR) that
// calls the scalar functions: SSE would need an emulated fma to give the same integers.

#if defined(QUANTA_OPS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_SIMD_H_
#undef QUANTA_OPS_CPU_SIMD_H_
#else
#define QUANTA_OPS_CPU_SIMD_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

template <bool kStreaming, class D, class V, typename T>
HWY_INLINE void put(D d, V v, T* dst) {
  if constexpr (kStreaming) {
    hn::Stream(v, d, dst);
  } else {
    hn::StoreU(v, d, dst);
  }
}

/// Codes as int32 lanes.
template <typename T>
HWY_INLINE auto load_codes(const T* src) {
  return hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<T, FloatTag>(), src));
}

/// math::quantize for a vector of floats.
template <typename T>
class Quantizer8 {
 public:
  explicit Quantizer8(const QuantizeArgs& args)
      : inv_scale_(hn::Set(FloatTag(), args.inv_scale)),
        low_(hn::Set(FloatTag(), static_cast<float>(args.min - args.zero_point))),
        high_(hn::Set(FloatTag(), static_cast<float>(args.max - args.zero_point))),
        nan_(hn::Set(FloatTag(), static_cast<float>(args.nan_code - args.zero_point))),
        shift_(hn::Set(IntTag(), args.zero_point - kMagicBits)) {}

  /// Two vectors of values to one of codes.
  HWY_INLINE auto operator()(hn::Vec<FloatTag> first, hn::Vec<FloatTag> second) const {
    const hn::Rebind<T, FloatTag> quarter;
    const hn::Twice<hn::Rebind<T, FloatTag>> half;
    return hn::Combine(half, hn::DemoteTo(quarter, codes(second)),
                       hn::DemoteTo(quarter, codes(first)));
  }

 private:
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the float: the addition itself
  // rounds half to even. The clamped differences are below 2^10, far from its limit of 2^22.
  static constexpr float kMagic = 12582912.0F;
  static constexpr std::int32_t kMagicBits = 0x4B400000;

  HWY_INLINE hn::Vec<IntTag> codes(hn::Vec<FloatTag> x) const {
    const FloatTag df;
    const auto scaled = hn::Mul(x, inv_scale_);
    const auto clamped = hn::Min(hn::Max(scaled, low_), high_);
    const auto known = hn::IfThenElse(hn::Eq(scaled, scaled), clamped, nan_);
    return hn::Add(hn::BitCast(IntTag(), hn::Add(known, hn::Set(df, kMagic))), shift_);
  }

  hn::Vec<FloatTag> inv_scale_, low_, high_, nan_;
  hn::Vec<IntTag> shift_;
};

template <typename T>
using HalfCodeTag = hn::Twice<hn::Rebind<T, FloatTag>>;

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
