// Private: rounding to small float formats in vectors, inside Highway's foreach_target. Like simd.h
// it is included once for each target, hence the guard that toggles.

#if defined(QUANTA_OPS_CPU_FORMAT_ROUNDING_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_FORMAT_ROUNDING_H_
#undef QUANTA_OPS_CPU_FORMAT_ROUNDING_H_
#else
#define QUANTA_OPS_CPU_FORMAT_ROUNDING_H_
#endif

#include <hwy/highway.h>

#include <bit>

#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/runtime/float_format.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

/// math::round_to_format of float vectors, the same bits. Where a format has no NaN, NaN becomes
/// its largest number unless `nan` keeps it.
class FormatRounding {
 public:
  explicit HWY_INLINE FormatRounding(const math::FloatFormat& format,
                                     math::Overflow overflow = math::Overflow::Saturate,
                                     math::NanRule nan = math::NanRule::Saturate)
      : dropped_(23 - format.mantissa_bits),
        wide_(format.max() > math::power_of_two(124 - dropped_)),
        special_(overflow == math::Overflow::Special && format.has_nan()),
        keeps_nan_(format.has_nan() || nan == math::NanRule::Keep),
        max_(hn::Set(FloatTag(), format.max())),
        limit_(special_ ? hn::Set(FloatTag(), limit_of(format, wide_)) : max_),
        min_normal_(hn::Set(FloatTag(), math::power_of_two(format.min_exponent()))),
        alignment_(hn::Set(FloatTag(), math::power_of_two(dropped_))),
        beyond_(hn::Set(FloatTag(),
                        std::bit_cast<float>(format.has_infinity() ? math::detail::kFloatInfinity
                                                                   : math::detail::kFloatNan))),
        zero_(hn::Set(FloatTag(), format.unsigned_zero() ? 0.0F : -0.0F)) {}

  HWY_INLINE hn::Vec<FloatTag> operator()(hn::Vec<FloatTag> x) const {
    // x86's minimum answers its second operand for NaN. The largest number is one of the format, so
    // saturating may come first.
    const auto magnitude = hn::Min(hn::Abs(x), limit_);
    auto rounded = wide_ ? round_bits(magnitude) : round_aligned(magnitude);
    if (special_) rounded = hn::IfThenElse(hn::Gt(rounded, max_), beyond_, rounded);
    // x + -0 is x; x + 0 makes a plain 0 of -0.
    const auto result = hn::Add(hn::CopySign(rounded, x), zero_);
    return keeps_nan_ ? hn::IfThenElse(hn::Eq(x, x), result, x) : result;
  }

 private:
  // Special results need what lies beyond the largest number to stay there.
  static float limit_of(const math::FloatFormat& format, bool wide) {
    return wide ? std::bit_cast<float>(math::detail::kFloatInfinity) : 4.0F * format.max();
  }

  // 2^23 steps of the magnitude: adding them aligns the last bits, so that the addition rounds.
  HWY_INLINE hn::Vec<FloatTag> round_aligned(hn::Vec<FloatTag> magnitude) const {
    const FloatTag d;
    const auto exponent = hn::And(magnitude, hn::BitCast(d, hn::Set(IntTag(), 0x7F800000)));
    const auto aligned = hn::Mul(hn::Max(exponent, min_normal_), alignment_);
    return hn::Sub(hn::Add(magnitude, aligned), aligned);
  }

  // Formats with float32's own exponents (bfloat16) would overflow in that sum. Their subnormal
  // numbers have the steps of normal ones, so that rounding the bits is enough.
  HWY_INLINE hn::Vec<FloatTag> round_bits(hn::Vec<FloatTag> magnitude) const {
    const IntTag d;
    const auto bits = hn::BitCast(d, magnitude);
    const auto odd = hn::And(hn::ShiftRightSame(bits, dropped_), hn::Set(d, 1));
    const auto half = hn::Set(d, (1 << (dropped_ - 1)) - 1);
    const auto rest = hn::Set(d, (1 << dropped_) - 1);
    return hn::BitCast(FloatTag(), hn::AndNot(rest, hn::Add(hn::Add(bits, half), odd)));
  }

  int dropped_;
  bool wide_, special_, keeps_nan_;
  hn::Vec<FloatTag> max_, limit_, min_normal_, alignment_, beyond_, zero_;
};

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard
