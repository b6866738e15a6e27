#pragma once

#include <cmath>
#include <cstdint>

#include "quanta/runtime/half.h"
#include "quanta/runtime/quant_math.h"

/// The scalar arithmetic of affine quantizers with an offset, as AIMET writes it: the offset is the
/// negated zero point, and scales divide. Every line is one rounded operation. CPU kernels and
/// tests include this. Nothing here throws, and many threads may call it at once.
namespace quanta {

/// How codes are rounded.
enum class AffineRounding : std::uint8_t {
  HalfEven,
  HalfAwayFromZero,  ///< trunc(v + 0.5 * sign(v)), AIMET's `c_round`
};

}  // namespace quanta

namespace quanta::math {

/// Towards the nearest integer, halves away from zero, as trunc(v + 0.5 * sign(v)) gives it.
QUANTA_HOST_DEVICE inline float round_half_away(float x) { return truncf(x + copysignf(0.5F, x)); }
QUANTA_HOST_DEVICE inline double round_half_away(double x) { return trunc(x + copysign(0.5, x)); }

/// The numbers that all elements of a tensor share.
template <typename T>
struct AffineLimits {
  T qmin = T{0};
  T qmax = T{255};
  T shift = T{0};  ///< zero_point_shift: 0 or 0.5
  AffineRounding rounding = AffineRounding::HalfEven;
};

template <typename T>
QUANTA_HOST_DEVICE inline T affine_round(T x, AffineRounding rounding) {
  return rounding == AffineRounding::HalfEven ? round_half_even(x) : round_half_away(x);
}

/// The functions below round the result of every operation with a `step`; this one is for float and
/// double, which need none.
struct NativeStep {
  template <typename T>
  QUANTA_HOST_DEVICE T operator()(T x) const {
    return x;
  }
};

/// These round to the dtypes of 16 bits.
struct Float16Step {
  template <typename T>
  QUANTA_HOST_DEVICE T operator()(T x) const {
    return static_cast<T>(float16_to_float(float_to_float16(static_cast<float>(x))));
  }
};
struct BFloat16Step {
  template <typename T>
  QUANTA_HOST_DEVICE T operator()(T x) const {
    return static_cast<T>(bfloat16_to_float(float_to_bfloat16(static_cast<float>(x))));
  }
};

/// clamp(round(x / scale) - offset, qmin, qmax); NaN stays NaN.
template <typename T, typename Step = NativeStep>
QUANTA_HOST_DEVICE inline T affine_quantize(T x, T scale, T offset, const AffineLimits<T>& limits,
                                            Step step = {}) {
  const T rounded = affine_round(step(x / scale), limits.rounding);
  return clamp(step(rounded - offset), limits.qmin, limits.qmax);
}

/// (q + offset) * scale.
template <typename T, typename Step = NativeStep>
QUANTA_HOST_DEVICE inline T affine_dequantize(T q, T scale, T offset, Step step = {}) {
  return step(step(q + offset) * scale);
}

/// (clamp(round(x / scale - shift) - offset, qmin, qmax) + (offset + shift)) * scale.
template <typename T, typename Step = NativeStep>
QUANTA_HOST_DEVICE inline T affine_quantize_dequantize(T x, T scale, T offset,
                                                       const AffineLimits<T>& limits,
                                                       Step step = {}) {
  const T steps = step(step(x / scale) - limits.shift);
  const T code = step(affine_round(steps, limits.rounding) - offset);
  const T clamped = clamp(code, limits.qmin, limits.qmax);
  return step(step(clamped + step(offset + limits.shift)) * scale);
}

/// What one element adds to the gradients, for an upstream gradient of `grad`.
template <typename T>
struct AffineGradient {
  T x;
  T scale;
  T offset;
};

/// The gradient of affine_quantize.
template <typename T>
QUANTA_HOST_DEVICE inline AffineGradient<T> affine_quantize_gradient(T x, T scale, T offset,
                                                                     const AffineLimits<T>& limits,
                                                                     T grad) {
  const T steps = x / scale;
  const T code = affine_round(steps, limits.rounding) - offset;
  if (!(code >= limits.qmin && code <= limits.qmax)) return {T{0}, T{0}, T{0}};
  const T for_x = grad / scale;
  return {for_x, -for_x * steps, -grad};
}

/// The gradient of affine_dequantize.
template <typename T>
QUANTA_HOST_DEVICE inline AffineGradient<T> affine_dequantize_gradient(T q, T scale, T offset,
                                                                       T grad) {
  const T scaled = grad * scale;
  return {scaled, grad * (q + offset), scaled};
}

/// The gradient of affine_quantize_dequantize: x passes straight through inside the range.
template <typename T>
QUANTA_HOST_DEVICE inline AffineGradient<T> affine_quantize_dequantize_gradient(
    T x, T scale, T offset, const AffineLimits<T>& limits, T grad) {
  const T steps = x / scale - limits.shift;
  const T rounded = affine_round(steps, limits.rounding);
  const T code = rounded - offset;
  if (code >= limits.qmin && code <= limits.qmax) return {grad, grad * (rounded - steps), T{0}};
  const T end = clamp(rounded, offset + limits.qmin, offset + limits.qmax);
  return {T{0}, grad * end, grad * scale};
}

/// Where gradients of x grow.
template <typename T>
struct AffineSpike {
  T border = T{0.5};  ///< distance from the nearest code, in steps, from which on they do
  T multiplier = T{1};
};

/// The gradient of affine_quantize_dequantize for an x that lies near a tie, multiplied.
template <typename T>
QUANTA_HOST_DEVICE inline T affine_spike(T x_grad, T x, T scale, const AffineLimits<T>& limits,
                                         const AffineSpike<T>& spike) {
  const T steps = x / scale - limits.shift;
  const T distance = affine_round(steps, limits.rounding) - steps;
  return distance > spike.border || -distance > spike.border ? x_grad * spike.multiplier : x_grad;
}

}  // namespace quanta::math
