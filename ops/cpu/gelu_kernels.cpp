#include "quanta/ops/cpu/gelu_kernels.h"

#include <algorithm>

// Before any header of Highway.
#include "quanta/ops/cpu/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gelu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/exp_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// Highest coefficient first. Products and sums are rounded one by one, without fused multiply-adds,
// so that every instruction set gives the same.
template <std::size_t kCount>
HWY_INLINE Vector horner(Vector x, const float (&coefficients)[kCount]) {
  const Tag d;
  auto sum = hn::Set(d, coefficients[0]);
  for (std::size_t i = 1; i < kCount; ++i) {
    sum = hn::Add(hn::Mul(sum, x), hn::Set(d, coefficients[i]));
  }
  return sum;
}

// x * (below for x < 0, 1 - below from 0 on): both functions are x times a share that is symmetric
// to 1/2, whose smaller half `below` is known without the cancellation of 1 + erf(x).
HWY_INLINE Vector weighted(Vector x, Vector below) {
  const Tag d;
  const auto above = hn::Sub(hn::Set(d, 1.0F), below);
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, above));
}

// erfc(z) / 2 for z = |x| / sqrt(2): Abramowitz and Stegun 7.1.26, halved; error below 7.5e-8.
struct Erf {
  HWY_INLINE Vector operator()(Vector x) const {
    const Tag d;
    constexpr float kCoefficients[] = {0.5307027145F, -0.7265760135F, 0.7107068705F,
                                       -0.142248368F, 0.127414796F,   0.0F};
    const auto z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752440F));
    const auto one = hn::Set(d, 1.0F);
    const auto t = hn::Div(one, hn::Add(one, hn::Mul(hn::Set(d, 0.3275911F), z)));
    const auto decay = exp_of_negative(d, hn::Neg(hn::Mul(z, z)));
    return weighted(x, hn::Mul(horner(t, kCoefficients), decay));
  }
};

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)).
struct Tanh {
  HWY_INLINE Vector operator()(Vector x) const {
    const Tag d;
    const auto cube = hn::Mul(hn::Mul(x, x), x);
    const auto u = hn::Mul(hn::Set(d, 0.79788456080286535588F),
                           hn::Add(x, hn::Mul(hn::Set(d, 0.044715F), cube)));
    const auto decay = exp_of_negative(d, hn::Mul(hn::Set(d, -2.0F), hn::Abs(u)));
    return weighted(x, hn::Div(decay, hn::Add(hn::Set(d, 1.0F), decay)));
  }
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
  if (i == count) return;
  float rest[kLanes] = {};
  std::copy(src + i, src + count, rest);
  hn::StoreU(function(hn::LoadU(d, rest)), d, rest);
  std::copy_n(rest, count - i, dst + i);
}

void GeluRow(GeluKind kind, const float* src, std::int64_t count, float* dst) {
  if (kind == GeluKind::Erf) {
    map_row<Erf>(src, count, dst);
  } else {
    map_row<Tanh>(src, count, dst);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(GeluRow);

void gelu_row(GeluKind kind, const float* src, std::int64_t count, float* dst) {
  HWY_DYNAMIC_DISPATCH(GeluRow)(kind, src, count, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
