#include "quanta/ops/elementwise/cpu_math.h"

#include <algorithm>

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/elementwise/cpu_math.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/exp_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// The product of each step with its sum, rounded twice.
HWY_INLINE Vector step(Vector sum, Vector x, float coefficient) {
  return hn::Add(hn::Mul(sum, x), hn::Set(Tag(), coefficient));
}

// math::exp_float; as exp_of_negative, for both signs.
struct Exp {
  HWY_INLINE Vector operator()(Vector x) const {
    const Tag d;
    const hn::RebindToSigned<Tag> di;
    // Beyond these the result is infinite or 0, and both factors below are still normal.
    const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -150.0F)), hn::Set(d, 129.0F));
    const auto power = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341F)));
    auto r = hn::Sub(clamped, hn::Mul(power, hn::Set(d, 0.693359375F)));
    r = hn::Sub(r, hn::Mul(power, hn::Set(d, -2.12194440e-4F)));
    auto p = hn::Set(d, 1.9875691500e-4F);
    p = step(p, r, 1.3981999507e-3F);
    p = step(p, r, 8.3334519073e-3F);
    p = step(p, r, 4.1665795894e-2F);
    p = step(p, r, 1.6666665459e-1F);
    p = step(p, r, 5.0000001201e-1F);
    const auto y = hn::Add(hn::Add(hn::Mul(p, hn::Mul(r, r)), r), hn::Set(d, 1.0F));
    const auto exponent = hn::ConvertTo(di, power);
    const auto half = hn::ShiftRight<1>(exponent);
    const auto bias = hn::Set(di, 127);
    const auto first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
    const auto second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
    // Max has lost a NaN.
    return hn::IfThenElse(hn::Eq(x, x), hn::Mul(hn::Mul(y, first), second), x);
  }
};

// math::erf_float, both of its pieces.
struct Erf {
  HWY_INLINE Vector operator()(Vector x) const {
    const Tag d;
    const auto one = hn::Set(d, 1.0F);
    const auto a = hn::Abs(x);
    const auto square = hn::Mul(x, x);
    auto p = hn::Set(d, 7.853861353153693e-5F);
    p = step(p, square, -8.010193625184903e-4F);
    p = step(p, square, 5.188327685732524e-3F);
    p = step(p, square, -2.685381193529856e-2F);
    p = step(p, square, 1.128358514861418e-1F);
    p = step(p, square, -3.761262582423300e-1F);
    p = step(p, square, 1.128379165726710e0F);
    const auto near = hn::Mul(x, p);

    const auto q = hn::Div(one, hn::Max(a, one));
    const auto y = hn::Mul(q, q);
    auto low = hn::Set(d, 2.326819970068386e-2F);  // for 1 <= a < 2
    low = step(low, y, -1.387039388740657e-1F);
    low = step(low, y, 3.687424674597105e-1F);
    low = step(low, y, -5.824733027278666e-1F);
    low = step(low, y, 6.210004621745983e-1F);
    low = step(low, y, -4.944515323274145e-1F);
    low = step(low, y, 3.404879937665872e-1F);
    low = step(low, y, -2.741127028184656e-1F);
    low = step(low, y, 5.638259427386472e-1F);
    auto high = hn::Set(d, -1.047766399936249e+1F);
    high = step(high, y, 1.297719955372516e+1F);
    high = step(high, y, -7.495518717768503e+0F);
    high = step(high, y, 2.921019019210786e+0F);
    high = step(high, y, -1.015265279202700e+0F);
    high = step(high, y, 4.218463358204948e-1F);
    high = step(high, y, -2.820767439740514e-1F);
    high = step(high, y, 5.641895067754075e-1F);
    const auto share = hn::IfThenElse(hn::Lt(a, hn::Set(d, 2.0F)), low, high);
    // Beyond 4 erf rounds to 1; the limit keeps the square finite.
    const auto limited = hn::Min(a, hn::Set(d, 12.0F));
    const auto decay = exp_of_negative(d, hn::Neg(hn::Mul(limited, limited)));
    const auto far = hn::CopySign(hn::Sub(one, hn::Mul(hn::Mul(decay, q), share)), x);
    const auto result = hn::IfThenElse(hn::Lt(a, one), near, far);
    return hn::IfThenElse(hn::Eq(x, x), result, x);
  }
};

struct Sqrt {
  HWY_INLINE Vector operator()(Vector x) const { return hn::Sqrt(x); }
};
struct Reciprocal {
  HWY_INLINE Vector operator()(Vector x) const { return hn::Div(hn::Set(Tag(), 1.0F), x); }
};

template <class Function>
HWY_INLINE void map_row(const float* src, std::int64_t count, float* dst) {
  const Tag d;
  const Function function;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(function(hn::LoadU(d, src + i)), d, dst + i);
  }
  if (kLanes == 1 || i == count) return;
  float rest[kLanes] = {};
  std::copy(src + i, src + count, rest);
  hn::StoreU(function(hn::LoadU(d, rest)), d, rest);
  std::copy_n(rest, count - i, dst + i);
}

void MathRow(MathFunction function, const float* src, std::int64_t count, float* dst) {
  switch (function) {
    case MathFunction::Exp:
      return map_row<Exp>(src, count, dst);
    case MathFunction::Erf:
      return map_row<Erf>(src, count, dst);
    case MathFunction::Sqrt:
      return map_row<Sqrt>(src, count, dst);
    case MathFunction::Reciprocal:
      return map_row<Reciprocal>(src, count, dst);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(MathRow);

void math_row(MathFunction function, const float* src, std::int64_t count, float* dst) {
  HWY_DYNAMIC_DISPATCH(MathRow)(function, src, count, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
