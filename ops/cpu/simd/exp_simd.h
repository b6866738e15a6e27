// Private: exp in vectors, for the kernel files inside Highway's foreach_target. Like Highway's own
// -inl.h headers it is included once for each target, hence the guard that toggles.

#if defined(QUANTA_OPS_CPU_EXP_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_EXP_SIMD_H_
#undef QUANTA_OPS_CPU_EXP_SIMD_H_
#else
#define QUANTA_OPS_CPU_EXP_SIMD_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

/// math::exp_float in vectors, for x <= 0 or NaN. Highway's own uses fused multiply-adds where there
/// are some; products and sums rounded one by one are the same on every machine.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V exp_of_negative(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> d32;
  // exp(-150) is 0 in float32, and the limit keeps both halves of the power of two normal.
  const auto clamped = hn::Max(x, hn::Set(d, -150.0F));
  const auto power = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341F)));
  // ln 2 in two parts, the first of so few bits that its product with `power` is exact.
  auto r = hn::Sub(clamped, hn::Mul(power, hn::Set(d, 0.693359375F)));
  r = hn::Sub(r, hn::Mul(power, hn::Set(d, -2.12194440e-4F)));
  // Cephes' polynomial for |r| <= ln(2) / 2.
  auto p = hn::Set(d, 1.9875691500e-4F);
  p = hn::Add(hn::Mul(p, r), hn::Set(d, 1.3981999507e-3F));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, 8.3334519073e-3F));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, 4.1665795894e-2F));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, 1.6666665459e-1F));
  p = hn::Add(hn::Mul(p, r), hn::Set(d, 5.0000001201e-1F));
  const auto y = hn::Add(hn::Add(hn::Mul(p, hn::Mul(r, r)), r), hn::Set(d, 1.0F));
  // Two factors, because 2^power alone may be too small for a normal float.
  const auto exponent = hn::ConvertTo(d32, power);
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(d32, 127);
  const auto first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  // Max has lost a NaN.
  return hn::IfThenElse(hn::Eq(x, x), hn::Mul(hn::Mul(y, first), second), x);
}

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
