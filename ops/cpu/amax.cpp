#include "quanta/ops/cpu/amax.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/amax.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "quanta/ops/cpu/simd/format_rounding.h"
#include "quanta/ops/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
using Floats = hn::Vec<FloatTag>;

// Codes of elements: what an amax comes to, and what that makes of an element.
class CodeSteps {
 public:
  explicit CodeSteps(const math::AmaxGrid& grid)
      : min_(hn::Set(FloatTag(), grid.min)), max_(hn::Set(FloatTag(), grid.max)) {}

  struct Parameters {
    Floats scale;
  };
  HWY_INLINE Parameters of(Floats amax) const {
    const auto counts_as_0 = hn::Le(amax, hn::Set(FloatTag(), math::kSmallestAmax));
    return {hn::IfThenZeroElse(counts_as_0, hn::Div(max_, amax))};
  }
  HWY_INLINE Floats apply(Floats x, const Parameters& parameters) const {
    // x86's maximum and minimum answer their second operand when one is NaN, which so stays.
    const auto code = hn::Round(hn::Mul(x, parameters.scale));
    return hn::Min(max_, hn::Max(min_, code));
  }

 private:
  Floats min_, max_;
};

class FakeQuantizeSteps {
 public:
  explicit FakeQuantizeSteps(const math::AmaxGrid& grid) : codes_(grid) {}

  struct Parameters {
    CodeSteps::Parameters codes;
    Floats divisor;
  };
  HWY_INLINE Parameters of(Floats amax) const {
    const CodeSteps::Parameters codes = codes_.of(amax);
    const auto counts_as_0 = hn::Le(amax, hn::Set(FloatTag(), math::kSmallestAmax));
    return {codes, hn::IfThenElse(counts_as_0, hn::Set(FloatTag(), 1.0F), codes.scale)};
  }
  HWY_INLINE Floats apply(Floats x, const Parameters& parameters) const {
    return hn::Div(codes_.apply(x, parameters.codes), parameters.divisor);
  }

 private:
  CodeSteps codes_;
};

class ScaledE4m3Steps {
 public:
  // Written out: constructors that the compiler adds are not compiled for the target.
  ScaledE4m3Steps() : round_(math::kE4M3FN) {}

  struct Parameters {
    Floats scale, inverse;
  };
  HWY_INLINE Parameters of(Floats amax) const {
    const FloatTag d;
    const auto one = hn::Set(d, 1.0F);
    const auto counts_as_0 = hn::Le(amax, hn::Set(d, math::kSmallestAmax));
    const auto reciprocal = hn::Div(one, hn::IfThenElse(counts_as_0, one, amax));
    const auto scale = hn::Mul(reciprocal, hn::Set(d, 448.0F));
    return {scale, hn::Div(one, scale)};
  }
  HWY_INLINE Floats apply(Floats x, const Parameters& parameters) const {
    return hn::Mul(round_(hn::Mul(x, parameters.scale)), parameters.inverse);
  }

 private:
  FormatRounding round_;
};

class StaticFp4Steps {
 public:
  StaticFp4Steps() : round_(math::kE2M1) {}

  struct Parameters {
    Floats divisor;
    hn::Mask<FloatTag> is_zero;
  };
  HWY_INLINE Parameters of(Floats scale) const {
    const FloatTag d;
    const auto finite = hn::Lt(hn::Abs(scale), hn::Set(d, std::numeric_limits<float>::infinity()));
    return {hn::IfThenElse(finite, scale, hn::Set(d, 1.0F)), hn::Eq(scale, hn::Zero(d))};
  }
  HWY_INLINE Floats apply(Floats x, const Parameters& parameters) const {
    const auto value = hn::Mul(round_(hn::Div(x, parameters.divisor)), parameters.divisor);
    return hn::IfThenZeroElse(parameters.is_zero, value);
  }

 private:
  FormatRounding round_;
};

template <bool kStreaming, class Steps>
HWY_INLINE std::int64_t run_vectors(const float* src, const AmaxRun& run, const Steps& steps,
                                    float* dst) {
  const FloatTag d;
  std::int64_t i = 0;
  if (run.step == 0) {
    const auto parameters = steps.of(hn::Set(d, *run.amax));
    for (; i + kLanes <= run.count; i += kLanes) {
      put<kStreaming>(d, steps.apply(hn::LoadU(d, src + i), parameters), dst + i);
    }
  } else {
    for (; i + kLanes <= run.count; i += kLanes) {
      const auto parameters = steps.of(hn::LoadU(d, run.amax + i));
      put<kStreaming>(d, steps.apply(hn::LoadU(d, src + i), parameters), dst + i);
    }
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}

template <class Steps>
HWY_INLINE std::int64_t run_vectors(const float* src, const AmaxRun& run, const Steps& steps,
                                    float* dst) {
  return run.store == Store::Streaming ? run_vectors<true>(src, run, steps, dst)
                                       : run_vectors<false>(src, run, steps, dst);
}
#endif  // QUANTA_VECTORS

void fake_tensor_quant(const float* src, const AmaxRun& run, const math::AmaxGrid& grid,
                       float* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = run_vectors(src, run, FakeQuantizeSteps(grid), dst);
#endif
  for (; i < run.count; ++i) {
    dst[i] = math::fake_tensor_quant(src[i], run.amax[i * run.step], grid);
  }
}

void tensor_quant(const float* src, const AmaxRun& run, const math::AmaxGrid& grid, float* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = run_vectors(src, run, CodeSteps(grid), dst);
#endif
  for (; i < run.count; ++i) {
    dst[i] = math::amax_code(src[i], math::amax_scale(run.amax[i * run.step], grid.max), grid);
  }
}

void scaled_e4m3(const float* src, const AmaxRun& run, float* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = run_vectors(src, run, ScaledE4m3Steps(), dst);
#endif
  for (; i < run.count; ++i) dst[i] = math::scaled_e4m3(src[i], run.amax[i * run.step]);
}

void static_fp4(const float* src, const AmaxRun& run, float* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = run_vectors(src, run, StaticFp4Steps(), dst);
#endif
  for (; i < run.count; ++i) dst[i] = math::static_fp4(src[i], run.amax[i * run.step]);
}

void amax_mask(const float* src, const float* grad, const AmaxRun& run, float* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const FloatTag d;
  for (; i + kLanes <= run.count; i += kLanes) {
    const auto amax = run.step == 0 ? hn::Set(d, *run.amax) : hn::LoadU(d, run.amax + i);
    const auto inside = hn::Le(hn::Abs(hn::LoadU(d, src + i)), amax);
    hn::StoreU(hn::IfThenElseZero(inside, hn::LoadU(d, grad + i)), d, dst + i);
  }
#endif
  for (; i < run.count; ++i) {
    dst[i] = math::amax_gradient(src[i], grad[i], run.amax[i * run.step]);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(fake_tensor_quant);
HWY_EXPORT(tensor_quant);
HWY_EXPORT(scaled_e4m3);
HWY_EXPORT(static_fp4);
HWY_EXPORT(amax_mask);

void fake_tensor_quant_run(const float* src, const AmaxRun& run, const math::AmaxGrid& grid,
                           float* dst) {
  HWY_DYNAMIC_DISPATCH(fake_tensor_quant)(src, run, grid, dst);
}

void tensor_quant_run(const float* src, const AmaxRun& run, const math::AmaxGrid& grid,
                      float* dst) {
  HWY_DYNAMIC_DISPATCH(tensor_quant)(src, run, grid, dst);
}

void scaled_e4m3_run(const float* src, const AmaxRun& run, float* dst) {
  HWY_DYNAMIC_DISPATCH(scaled_e4m3)(src, run, dst);
}

void static_fp4_run(const float* src, const AmaxRun& run, float* dst) {
  HWY_DYNAMIC_DISPATCH(static_fp4)(src, run, dst);
}

void amax_mask_run(const float* src, const float* grad, const AmaxRun& run, float* dst) {
  HWY_DYNAMIC_DISPATCH(amax_mask)(src, grad, run, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
