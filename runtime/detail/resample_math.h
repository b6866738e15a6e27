#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "quanta/runtime/host_device.h"
#include "quanta/runtime/quant_math.h"

// Where the elements of a resized, padded or turned dimension come from, once for CPU and CUDA
// kernels. Nothing throws, and many threads may call it at once.

namespace quanta::math {

/// How the source of position o of a dimension follows.
enum class SourceRule : std::uint8_t {
  Shifted,       ///< o - before; -1 for what is not in the input
  Replicate,     ///< o - before, not beyond the ends
  Reflect,       ///< o - before, mirrored at the ends
  Circular,      ///< o - before, from the other end again
  Reversed,      ///< from the last one to the first
  Nearest,       ///< floor(o * scale), in float32 as torch has it
  NearestExact,  ///< floor((o + 0.5) * scale)
};

struct SourceAxis {
  SourceRule rule = SourceRule::Shifted;
  std::int64_t input = 1;
  std::int64_t output = 1;
  std::int64_t before = 0;  ///< positions of the result before the first one of the input
  float scale = 1.0F;       ///< input positions for each output position
};

QUANTA_HOST_DEVICE inline std::int64_t source_of(const SourceAxis& axis, std::int64_t o) {
  const std::int64_t last = axis.input - 1;
  const std::int64_t shifted = o - axis.before;
  switch (axis.rule) {
    case SourceRule::Shifted:
      return shifted >= 0 && shifted <= last ? shifted : -1;
    case SourceRule::Replicate:
      return shifted < 0 ? 0 : shifted > last ? last : shifted;
    case SourceRule::Reflect: {
      const std::int64_t mirrored = shifted < 0 ? -shifted : shifted;
      return mirrored > last ? 2 * last - mirrored : mirrored;
    }
    case SourceRule::Circular:
      return (shifted + axis.input) % axis.input;
    case SourceRule::Reversed:
      return last - o;
    case SourceRule::Nearest: {
      const auto source = static_cast<std::int64_t>(floorf(static_cast<float>(o) * axis.scale));
      return source < last ? source : last;
    }
    case SourceRule::NearestExact: {
      const auto source =
          static_cast<std::int64_t>(floorf((static_cast<float>(o) + 0.5F) * axis.scale));
      return source < last ? source : last;
    }
  }
  return o;
}

/// weight_low * x[low] + weight_high * x[high].
struct LinearTap {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float weight_low = 1.0F;
  float weight_high = 0.0F;
};

/// Where a position of a linear interpolation lies in the input.
enum class LinearRule : std::uint8_t {
  AlignCorners,    ///< o * scale
  HalfPixel,       ///< (o + 0.5) * scale - 0.5, not below 0
  HalfPixelFused,  ///< the same, product and difference rounded once
};

struct LinearAxis {
  LinearRule rule = LinearRule::HalfPixel;
  std::int64_t input = 1;
  std::int64_t output = 1;
  float scale = 1.0F;
};

QUANTA_HOST_DEVICE inline LinearTap linear_tap(const LinearAxis& axis, std::int64_t o) {
  // Not 0 times the next element, which may be infinite.
  if (axis.input == axis.output && axis.scale == 1.0F) return {o, o, 1.0F, 0.0F};
  const auto position = static_cast<float>(o);
  float source = axis.scale * position;
  if (axis.rule != LinearRule::AlignCorners) {
    const float half_pixel = axis.rule == LinearRule::HalfPixelFused
                                 ? fmaf(axis.scale, position + 0.5F, -0.5F)
                                 : axis.scale * (position + 0.5F) - 0.5F;
    source = half_pixel < 0.0F ? 0.0F : half_pixel;
  }
  const std::int64_t last = axis.input - 1;
  const auto whole = static_cast<std::int64_t>(source);
  LinearTap tap;
  tap.low = whole < last ? whole : last;
  tap.high = tap.low < last ? tap.low + 1 : last;
  const float rest = source - static_cast<float>(tap.low);
  const float at_least = rest < 0.0F ? 0.0F : rest;
  tap.weight_high = at_least > 1.0F ? 1.0F : at_least;
  tap.weight_low = 1.0F - tap.weight_high;
  return tap;
}

/// Which product of a blend is not rounded before the sum.
enum class Fusing : std::uint8_t { None, Low, High };

template <Fusing kFusing>
QUANTA_HOST_DEVICE inline float blend_of(float weight_low, float low, float weight_high,
                                         float high) {
  if constexpr (kFusing == Fusing::Low) return fmaf(weight_low, low, weight_high * high);
  if constexpr (kFusing == Fusing::High) return fmaf(weight_high, high, weight_low * low);
  return weight_low * low + weight_high * high;
}

/// How torch's kernel for channels-last codes, which its compiler fused, blends a pixel: the
/// channels before this one in whole vectors of eight (High), the others one by one (Low).
QUANTA_HOST_DEVICE inline std::int64_t first_single_channel(std::int64_t channels) {
  return channels / 8 * 8;
}

/// A blend as an element: floats as they are, codes as rne(blend - zero_point) + zero_point.
template <typename T>
QUANTA_HOST_DEVICE inline T rounded_blend(float blend, float zero_point) {
  if constexpr (std::is_same_v<T, float>) {
    static_cast<void>(zero_point);
    return blend;
  } else {
    const float code = round_half_even(blend - zero_point) + zero_point;
    return static_cast<T>(clamp(code, static_cast<float>(std::numeric_limits<T>::min()),
                                static_cast<float>(std::numeric_limits<T>::max())));
  }
}

/// What becomes of the fraction of a number that stands for an integer.
enum class Fraction : std::uint8_t { Rounded, Dropped };

/// A float or double as an integer, saturated; NaN is 0. The limits are compared as floats: 2^63 is
/// one too many.
template <typename T, typename Float>
QUANTA_HOST_DEVICE inline T saturated(Float number, Fraction fraction) {
  constexpr auto kMin = static_cast<Float>(std::numeric_limits<T>::min());
  constexpr auto kMax = static_cast<Float>(std::numeric_limits<T>::max());
  const Float value = fraction == Fraction::Rounded ? round_half_even(number) : std::trunc(number);
  if (value >= kMax) return std::numeric_limits<T>::max();
  if (value <= kMin) return std::numeric_limits<T>::min();
  return static_cast<T>(value == value ? value : Float{});
}

}  // namespace quanta::math
