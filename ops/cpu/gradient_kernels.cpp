#include "quanta/ops/cpu/gradient_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gradient_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
using DoubleTag = hn::ScalableTag<double>;
using HalfTag = hn::Rebind<float, DoubleTag>;

constexpr std::int64_t lanes() { return static_cast<std::int64_t>(hn::MaxLanes(Tag())); }
constexpr std::int64_t double_lanes() {
  return static_cast<std::int64_t>(hn::MaxLanes(DoubleTag()));
}

// body(tag, i) for whole vectors, then for single elements.
template <class Body>
HWY_INLINE void for_each_vector(std::int64_t count, const Body& body) {
  const Tag d;
  const hn::CappedTag<float, 1> single;
  std::int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) body(d, i);
  for (; i < count; ++i) body(single, i);
}

void GateGradient(const float* gradient, const float* x, float* dst, std::int64_t count,
                  const Gate& gate) {
  for_each_vector(count, [&](auto d, std::int64_t i) QUANTA_INLINED {
    const auto value = hn::LoadU(d, x + i);
    const auto outside =
        hn::Or(hn::Le(value, hn::Set(d, gate.low)), hn::Ge(value, hn::Set(d, gate.high)));
    const auto scaled = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, gate.factor));
    hn::StoreU(hn::IfThenZeroElse(outside, scaled), d, dst + i);
  });
}

void HardswishGradient(const float* gradient, const float* x, float* dst, std::int64_t count) {
  for_each_vector(count, [&](auto d, std::int64_t i) QUANTA_INLINED {
    const auto value = hn::LoadU(d, x + i);
    const auto from = hn::LoadU(d, gradient + i);
    const auto three = hn::Set(d, 3.0F);
    const auto slope = hn::Add(hn::Div(value, three), hn::Set(d, 0.5F));
    const auto inside = hn::IfThenElse(hn::Lt(value, three), hn::Mul(from, slope), from);
    hn::StoreU(hn::IfThenZeroElse(hn::Le(value, hn::Set(d, -3.0F)), inside), d, dst + i);
  });
}

template <class D>
HWY_INLINE hn::Vec<D> affine(D d, const float* gradient, const float* x, hn::Vec<D> a,
                             hn::Vec<D> center, hn::Vec<D> b, hn::Vec<D> c) {
  const auto difference = hn::Sub(hn::LoadU(d, x), center);
  return hn::Add(hn::Add(hn::Mul(hn::LoadU(d, gradient), a), hn::Mul(difference, b)), c);
}

void AffineRow(const float* gradient, const float* x, float* dst, std::int64_t count,
               const AffineGradient& numbers, std::int64_t step) {
  if (step == 0) {
    for_each_vector(count, [&](auto d, std::int64_t i) QUANTA_INLINED {
      hn::StoreU(affine(d, gradient + i, x + i, hn::Set(d, *numbers.a), hn::Set(d, *numbers.center),
                        hn::Set(d, *numbers.b), hn::Set(d, *numbers.c)),
                 d, dst + i);
    });
    return;
  }
  for_each_vector(count, [&](auto d, std::int64_t i) QUANTA_INLINED {
    hn::StoreU(affine(d, gradient + i, x + i, hn::LoadU(d, numbers.a + i),
                      hn::LoadU(d, numbers.center + i), hn::LoadU(d, numbers.b + i),
                      hn::LoadU(d, numbers.c + i)),
               d, dst + i);
  });
}

// Eight lanes of sums on every machine, so that the order of additions is the same.
void GradientSums(const float* gradient, const float* x, std::int64_t count, float center,
                  double* sums) {
  constexpr std::int64_t kLanes = 8;
  constexpr std::size_t kVectors = static_cast<std::size_t>(kLanes / double_lanes());
  const DoubleTag d;
  const HalfTag half;
  const auto middle = hn::Set(half, center);
  hn::Vec<DoubleTag> added[kVectors];
  hn::Vec<DoubleTag> products[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) added[k] = products[k] = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t k = 0; k < kVectors; ++k) {
      const std::int64_t at = i + static_cast<std::int64_t>(k) * double_lanes();
      const auto difference = hn::Sub(hn::LoadU(half, x + at), middle);
      const auto wide = hn::PromoteTo(d, hn::LoadU(half, gradient + at));
      added[k] = hn::Add(added[k], wide);
      products[k] = hn::Add(products[k], hn::Mul(wide, hn::PromoteTo(d, difference)));
    }
  }
  double totals[2][kLanes];
  for (std::size_t k = 0; k < kVectors; ++k) {
    hn::StoreU(added[k], d, totals[0] + k * static_cast<std::size_t>(double_lanes()));
    hn::StoreU(products[k], d, totals[1] + k * static_cast<std::size_t>(double_lanes()));
  }
  for (; i < count; ++i) {
    totals[0][0] += static_cast<double>(gradient[i]);
    totals[1][0] += static_cast<double>(gradient[i]) * static_cast<double>(x[i] - center);
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sums[0] += totals[0][lane];
    sums[1] += totals[1][lane];
  }
}

// A vector of channels of one row.
template <class D>
HWY_INLINE void add_channels(D d, const float* gradient, const float* x, const float* center,
                             double* sums, double* products) {
  const hn::Rebind<float, D> half;
  const auto from = hn::LoadU(half, gradient);
  const auto difference = hn::Sub(hn::LoadU(half, x), hn::LoadU(half, center));
  const auto wide = hn::PromoteTo(d, from);
  hn::StoreU(hn::Add(hn::LoadU(d, sums), wide), d, sums);
  const auto product = hn::Mul(wide, hn::PromoteTo(d, difference));
  hn::StoreU(hn::Add(hn::LoadU(d, products), product), d, products);
}

void GradientChannelSums(const float* gradient, const float* x, std::int64_t rows,
                         std::int64_t channels, const float* center, double* sums) {
  const DoubleTag d;
  double* products = sums + channels;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* from = gradient + row * channels;
    const float* at = x + row * channels;
    std::int64_t c = 0;
    for (; c + double_lanes() <= channels; c += double_lanes()) {
      add_channels(d, from + c, at + c, center + c, sums + c, products + c);
    }
    for (; c < channels; ++c) {
      sums[c] += static_cast<double>(from[c]);
      products[c] += static_cast<double>(from[c]) * static_cast<double>(at[c] - center[c]);
    }
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(GateGradient);
HWY_EXPORT(HardswishGradient);
HWY_EXPORT(AffineRow);
HWY_EXPORT(GradientSums);
HWY_EXPORT(GradientChannelSums);

void gate_gradient(const float* gradient, const float* x, float* dst, std::int64_t count,
                   const Gate& gate) {
  HWY_DYNAMIC_DISPATCH(GateGradient)(gradient, x, dst, count, gate);
}
void hardswish_gradient(const float* gradient, const float* x, float* dst, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(HardswishGradient)(gradient, x, dst, count);
}
void affine_gradient(const float* gradient, const float* x, float* dst, std::int64_t count,
                     const AffineGradient& numbers, std::int64_t step) {
  HWY_DYNAMIC_DISPATCH(AffineRow)(gradient, x, dst, count, numbers, step);
}
void gradient_sums(const float* gradient, const float* x, std::int64_t count, float center,
                   double* sums) {
  HWY_DYNAMIC_DISPATCH(GradientSums)(gradient, x, count, center, sums);
}
void gradient_channel_sums(const float* gradient, const float* x, std::int64_t rows,
                           std::int64_t channels, const float* center, double* sums) {
  HWY_DYNAMIC_DISPATCH(GradientChannelSums)(gradient, x, rows, channels, center, sums);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
