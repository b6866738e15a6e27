#pragma once

#include <cmath>
#include <cstdint>

#include "quanta/runtime/float_format.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/host_device.h"
#include "quanta/runtime/quant_math.h"

/// The scalar arithmetic of quantizers that are described by the largest magnitude they represent
/// (amax), as pytorch-quantization and ModelOpt have it: kernels and tests include this. There are
/// no fused multiply-adds (-ffp-contract=off). Nothing here throws, and many threads may call it at
/// once.
namespace quanta::math {

/// Magnitudes up to here count as 0: such elements quantize to 0.
inline constexpr float kSmallestAmax = 1.0F / (1 << 24);

/// The codes that `num_bits` allow.
struct AmaxGrid {
  float min = -127.0F;
  float max = 127.0F;
};

QUANTA_HOST_DEVICE inline AmaxGrid amax_grid(std::int64_t num_bits, bool is_unsigned,
                                             bool narrow_range) {
  const auto max =
      static_cast<float>((std::int64_t{1} << (num_bits - 1 + (is_unsigned ? 1 : 0))) - 1);
  if (is_unsigned) return {0.0F, max};
  return {narrow_range ? -max : -max - 1.0F, max};
}

/// Codes for one unit of x; 0 where amax counts as 0.
template <typename T>
QUANTA_HOST_DEVICE inline T amax_scale(T amax, float max_code) {
  return amax <= static_cast<T>(kSmallestAmax) ? T{0} : static_cast<T>(max_code) / amax;
}

/// What codes are divided by.
template <typename T>
QUANTA_HOST_DEVICE inline T amax_divisor(T amax, T scale) {
  return amax <= static_cast<T>(kSmallestAmax) ? T{1} : scale;
}

/// clamp(round_half_even(x * scale), min, max); NaN stays.
template <typename T>
QUANTA_HOST_DEVICE inline T amax_code(T x, T scale, const AmaxGrid& grid) {
  const T code = round_half_even(x * scale);
  const T at_least = code < static_cast<T>(grid.min) ? static_cast<T>(grid.min) : code;
  return static_cast<T>(grid.max) < at_least ? static_cast<T>(grid.max) : at_least;
}

/// Quantize and dequantize in one.
template <typename T>
QUANTA_HOST_DEVICE inline T fake_tensor_quant(T x, T amax, const AmaxGrid& grid) {
  const T scale = amax_scale(amax, grid.max);
  return amax_code(x, scale, grid) / amax_divisor(amax, scale);
}

/// amax_code where every step is rounded to bfloat16, as `scale` and the grid have been.
QUANTA_HOST_DEVICE inline float amax_code_bfloat16(float x, float scale, const AmaxGrid& grid) {
  return amax_code(bfloat16_to_float(float_to_bfloat16(x * scale)), 1.0F, grid);
}

/// The gradient that passes: that of elements up to amax.
QUANTA_HOST_DEVICE inline float amax_gradient(float x, float grad, float amax) {
  return fabsf(x) <= amax ? grad : 0.0F;
}

/// What amax itself gets of that gradient: an element beyond it follows its end of the range.
QUANTA_HOST_DEVICE inline float gradient_of_amax(float x, float grad, float amax) {
  if (x > amax) return grad;
  return x < -amax ? -grad : 0.0F;
}

// The formats are copied within functions: device code cannot refer to the host's constants.

/// A number over x as Python's torch divides it: times the reciprocal of x, which is not the nearest
/// float to the quotient.
QUANTA_HOST_DEVICE inline float number_over(float number, float x) { return 1.0F / x * number; }

/// x as a multiple of amax / 448 in E4M3.
QUANTA_HOST_DEVICE inline float scaled_e4m3(float x, float amax) {
  constexpr FloatFormat kFormat = kE4M3FN;
  const float scale = number_over(448.0F, amax <= kSmallestAmax ? 1.0F : amax);
  return round_to_format(x * scale, kFormat) * (1.0F / scale);
}

/// x as a multiple of `scale` in E2M1: 0 for a scale of 0; one that is not finite counts as 1.
QUANTA_HOST_DEVICE inline float static_fp4(float x, float scale) {
  constexpr FloatFormat kFormat = kE2M1;
  if (scale == 0.0F) return 0.0F;
  const float divisor = std::isfinite(scale) ? scale : 1.0F;
  return round_to_format(x / divisor, kFormat, Overflow::Saturate, NanRule::Saturate) * divisor;
}

/// The step size and the shift of an affine grid over [min, max].
struct AffineRange {
  float step;
  float zero;  ///< in steps
  float low, high;
};

QUANTA_HOST_DEVICE inline AffineRange affine_range(float min, float max, std::int64_t num_bits) {
  const auto levels = static_cast<float>(std::int64_t{1} << num_bits);
  AffineRange range{};
  range.step = (max - min) / (levels - 1.0F);
  range.low = -levels / 2.0F;
  range.high = levels / 2.0F - 1.0F;
  range.zero = round_half_even(min / range.step) - range.low;
  return range;
}

QUANTA_HOST_DEVICE inline float fake_affine(float x, const AffineRange& range) {
  return (clamp(round_half_even(x / range.step) - range.zero, range.low, range.high) + range.zero) *
         range.step;
}

}  // namespace quanta::math
