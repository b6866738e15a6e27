#include "quanta/ops/cpu/gelu.h"

#include <algorithm>

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gelu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/exp_simd.h"
#include "quanta/ops/cpu/simd/gelu_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

struct Erf {
  HWY_INLINE Vector operator()(Vector x) const { return gelu_erf(Tag(), x); }
};

// math::gelu_tanh_float in vectors.
struct Tanh {
  HWY_INLINE Vector operator()(Vector x) const {
    const Tag d;
    const auto cube = hn::Mul(hn::Mul(x, x), x);
    const auto u = hn::Mul(hn::Set(d, 0.79788456080286535588F),
                           hn::Add(x, hn::Mul(hn::Set(d, 0.044715F), cube)));
    const auto decay = exp_of_negative(d, hn::Mul(hn::Set(d, -2.0F), hn::Abs(u)));
    const auto one = hn::Set(d, 1.0F);
    const auto below = hn::Div(decay, hn::Add(one, decay));
    return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, hn::Sub(one, below)));
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
  if (kLanes == 1 || i == count) return;
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
