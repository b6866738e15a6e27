#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "quanta/runtime/host_device.h"

// The scalar arithmetic of quantization, once: CPU kernels, CUDA kernels and tests include this.
// Everything here must stay free of dependencies and of fused multiply-adds (the build passes
// -ffp-contract=off), because results are compared bit by bit. Nothing throws, and
// many threads may call it at once.

namespace quanta::math {

/// Round to nearest, ties to even.
QUANTA_HOST_DEVICE inline float round_half_even(float x) { return nearbyintf(x); }
QUANTA_HOST_DEVICE inline double round_half_even(double x) { return nearbyint(x); }

template <typename T>
QUANTA_HOST_DEVICE inline T clamp(T x, T low, T high) {
  // Written so that NaN gives `low`'s comparison order as std::min(std::max(x, low), high).
  const T at_least = x < low ? low : x;
  return high < at_least ? high : at_least;
}

/// 1 / scale as quantize uses it. torch multiplies by this reciprocal: a division would round
/// differently at ties (scale 0.00214854861, x 0.273939937: 128 one way, 127 the other).
QUANTA_HOST_DEVICE inline float inverse_scale(float scale) { return 1.0F / scale; }

/// q = clamp(zero_point + round_half_even(x * inv_scale), min, max), for ranges of 8 bits or fewer.
/// Infinities saturate. NaN gives `nan_code`: torch's per-tensor code answers max, its per-channel
/// code 0.
QUANTA_HOST_DEVICE inline std::int32_t quantize(float x, float inv_scale, std::int32_t zero_point,
                                                std::int32_t min, std::int32_t max,
                                                std::int32_t nan_code) {
  const float scaled = x * inv_scale;
  if (scaled != scaled) return nan_code;
  // Both ends are integers, so clamping before the rounding changes nothing and keeps the
  // conversion defined for huge values and infinities.
  const float low = static_cast<float>(min - zero_point);
  const float high = static_cast<float>(max - zero_point);
  return zero_point + static_cast<std::int32_t>(round_half_even(clamp(scaled, low, high)));
}

/// The per-tensor rule: NaN gives max.
QUANTA_HOST_DEVICE inline std::int32_t quantize(float x, float inv_scale, std::int32_t zero_point,
                                                std::int32_t min, std::int32_t max) {
  return quantize(x, inv_scale, zero_point, min, max, max);
}

/// One float as torch's quantize_val takes it (Tensor.copy_ and fill_, per tensor): the rounded
/// value becomes an int32 as x86 converts, so that NaN and what does not fit give the lowest one,
/// and the sum with the zero point wraps. 1e10 steps are thus quint8 0.
QUANTA_HOST_DEVICE inline std::int32_t quantize_wrapping(float x, float inv_scale,
                                                         std::int32_t zero_point, std::int32_t min,
                                                         std::int32_t max) {
  const float rounded = round_half_even(x * inv_scale);
  const bool fits = rounded >= -2147483648.0F && rounded < 2147483648.0F;
  const std::uint32_t steps =
      fits ? static_cast<std::uint32_t>(static_cast<std::int32_t>(rounded)) : 0x80000000U;
  return clamp(static_cast<std::int32_t>(steps + static_cast<std::uint32_t>(zero_point)), min, max);
}

/// A float that stands for an int32: saturates; NaN gives the lowest, as in torch.
QUANTA_HOST_DEVICE inline std::int32_t saturate_int32(float value) {
  if (!(value > -2147483648.0F)) return std::numeric_limits<std::int32_t>::min();
  if (value >= 2147483648.0F) return std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(value);
}

/// The same for qint32. The zero point is added in float32, as fbgemm does: beyond 2^24 the sum
/// rounds. NaN gives the lowest value.
QUANTA_HOST_DEVICE inline std::int32_t quantize_qint32(float x, float inv_scale,
                                                       std::int64_t zero_point) {
  return saturate_int32(static_cast<float>(zero_point) + round_half_even(x * inv_scale));
}

/// An exact integer `c` in steps of multiplier * (output scale), to a qint32 code; the sum is in
/// integers here, as in torch's quantized::mul.
QUANTA_HOST_DEVICE inline std::int32_t requantize_qint32(std::int64_t c, float multiplier,
                                                         std::int64_t zero_point) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  const float rounded = round_half_even(static_cast<float>(c) * multiplier);
  if (rounded >= 4.0e18F) return static_cast<std::int32_t>(kMax);
  if (!(rounded > -4.0e18F)) return static_cast<std::int32_t>(kMin);
  return static_cast<std::int32_t>(
      clamp(static_cast<std::int64_t>(rounded) + zero_point, kMin, kMax));
}

/// (q - zero_point) * scale, the difference in integers, the product in float32.
QUANTA_HOST_DEVICE inline float dequantize(std::int32_t q, float scale, std::int32_t zero_point) {
  return static_cast<float>(static_cast<std::int64_t>(q) - zero_point) * scale;
}

/// Dequantize as torch's vector code inside add, leaky_relu, sigmoid and their like does it, with
/// offset = scale * -zero_point rounded to float32: fma(q, scale, offset). At rounding ties of a
/// following quantize it can differ from dequantize() by a unit.
QUANTA_HOST_DEVICE inline float dequantize_offset(float scale, std::int64_t zero_point) {
  return scale * -static_cast<float>(zero_point);
}
QUANTA_HOST_DEVICE inline float dequantize_fused(std::int32_t q, float scale, float offset) {
  return fmaf(static_cast<float>(q), scale, offset);
}

/// Per channel: difference and product in double (torch keeps those scales as double).
QUANTA_HOST_DEVICE inline float dequantize_per_channel(std::int32_t q, double scale,
                                                       std::int64_t zero_point) {
  return static_cast<float>(
      (static_cast<double>(static_cast<float>(q)) - static_cast<double>(zero_point)) * scale);
}

/// Float zero points: q = clamp(round_half_even(x * inv_scale + zero_point)); the zero point is
/// added before rounding. A scale of 0 uses 1.
QUANTA_HOST_DEVICE inline std::int32_t quantize_float_qparams(float x, float scale,
                                                              float zero_point, std::int32_t min,
                                                              std::int32_t max) {
  const float inv_scale = scale == 0.0F ? 1.0F : 1.0F / scale;
  const float value = round_half_even(x * inv_scale + zero_point);
  if (value <= static_cast<float>(min)) return min;
  if (value >= static_cast<float>(max)) return max;
  return value == value ? static_cast<std::int32_t>(value) : min;
}

QUANTA_HOST_DEVICE inline float dequantize_float_qparams(std::int32_t q, float scale,
                                                         float zero_point) {
  return (static_cast<float>(q) - zero_point) * scale;
}

/// The end of an integer convolution or matmul (fbgemm's order, one float32 operation a step):
///   q = clamp(zero_point + round_half_even(fma(bias, bias_factor, float(acc)) * multiplier), min,
///             max)
/// where multiplier = scale_x * scale_w / scale_out. Per-channel weights have
/// bias / (scale_x * scale_w) for `bias`, and 1 for `bias_factor`, so that they add. Per-tensor
/// weights have the bias itself, and 1 / (scale_x * scale_w).
QUANTA_HOST_DEVICE inline std::int32_t requantize(std::int32_t acc, float bias, float bias_factor,
                                                  float multiplier, std::int32_t zero_point,
                                                  std::int32_t min, std::int32_t max) {
  const float scaled = fmaf(bias, bias_factor, static_cast<float>(acc)) * multiplier;
  const float low = static_cast<float>(min - zero_point);
  const float high = static_cast<float>(max - zero_point);
  const float rounded = round_half_even(scaled);
  if (!(rounded < high)) return max;
  if (rounded < low) return min;
  return zero_point + static_cast<std::int32_t>(rounded);
}

/// What fake quantization does to the values of one tensor or channel.
struct FakeQuantizeParams {
  float scale = 1.0F;
  float inv_scale = 1.0F;  ///< inverse_scale(scale)
  float zero_point = 0.0F;
  float min = 0.0F;  ///< the lowest code
  float max = 255.0F;
  /// Whether the zero point is no integer: it is then added before rounding.
  bool float_zero_point = false;
};

template <typename T>
struct FakeQuantized {
  T value;
  bool inside;  ///< whether the code lay within the range: there the gradient passes
};

/// Quantize and dequantize in one, for float or double:
///
///   code  = round_half_even(x * inv_scale) + zero_point           in T
///   value = (clamp(code, min, max) - zero_point) * scale          the product in float32, as torch
///
/// Infinities saturate, NaN becomes the lowest code; neither is inside.
template <typename T>
QUANTA_HOST_DEVICE inline FakeQuantized<T> fake_quantize(T x, const FakeQuantizeParams& params) {
  const T scaled = x * static_cast<T>(params.inv_scale);
  const auto zero_point = static_cast<T>(params.zero_point);
  const T code = params.float_zero_point ? round_half_even(scaled + zero_point)
                                         : round_half_even(scaled) + zero_point;
  const auto min = static_cast<T>(params.min);
  const auto max = static_cast<T>(params.max);
  const T at_least = code > min ? code : min;
  const T clamped = at_least < max ? at_least : max;
  return {static_cast<T>(static_cast<float>(clamped - zero_point) * params.scale),
          code >= min && code <= max};
}

/// What one element adds to the gradients of a learnable fake quantizer, for an upstream gradient
/// of 1 (torch's gradient of LSQ).
template <typename T>
struct LearnedGradient {
  T x;
  T scale;
  T zero_point;
};

/// The zero point that a learnable fake quantizer uses: rounded into the range.
QUANTA_HOST_DEVICE inline float learned_zero_point(float zero_point, float min, float max) {
  return clamp(round_half_even(zero_point), min, max);
}

/// The one that torch's backward of the per-tensor form uses: towards zero after adding a half, so
/// that below 0 it is one more than the forward's (-1.3: 0, not -1).
QUANTA_HOST_DEVICE inline float learned_zero_point_backward(float zero_point, float min,
                                                            float max) {
  return truncf(clamp(zero_point + 0.5F, min, max));
}

/// Inside: x passes, the scale gets (value - x) / scale. Outside: x gets none, the scale gets
/// end - zero_point and the zero point -scale.
template <typename T>
QUANTA_HOST_DEVICE inline LearnedGradient<T> learned_gradient(T x,
                                                              const FakeQuantizeParams& params) {
  const auto inv_scale = static_cast<T>(params.inv_scale);
  const auto scale = static_cast<T>(params.scale);
  const T code = round_half_even(x * inv_scale) + static_cast<T>(params.zero_point);
  if (code >= static_cast<T>(params.min) && code <= static_cast<T>(params.max)) {
    const T value = (code - static_cast<T>(params.zero_point)) * scale;
    return {T{1}, (value - x) * inv_scale, T{0}};
  }
  // NaN counts as below, as the forward has it.
  const T end = code > static_cast<T>(params.max) ? params.max : params.min;
  return {T{0}, end - static_cast<T>(params.zero_point), -scale};
}

/// Scale and zero point, as observers and dynamic quantization choose them.
struct QParams {
  double scale = 1.0;
  std::int64_t zero_point = 0;
};

/// The choices of fbgemm's ChooseQuantizationParams.
struct ChooseOptions {
  bool preserve_sparsity = false;   ///< symmetric around a zero point in the middle
  bool force_power_of_two = false;  ///< the scale becomes a power of two
  bool reduce_range = false;        ///< half of the codes
  /// As fbgemm itself has it, which torch calls in fused_moving_avg_obs_fake_quant alone: the zero
  /// point follows from the float32 scale, and from another end. It differs at rounding ties, such as
  /// that of [-1, 1]. Torch's own copy of the function keeps a double scale.
  bool of_fbgemm = false;
};

/// fbgemm's ChooseQuantizationParams as torch has it, for values in [min, max] (finite, min <= max)
/// and codes in [qmin, qmax]. Ends are float32 after every step, the rest is double.
QUANTA_HOST_DEVICE inline QParams choose_qparams(float min, float max, std::int32_t qmin,
                                                 std::int32_t qmax,
                                                 const ChooseOptions& options = {}) {
  if (options.reduce_range) {
    qmin /= 2;
    qmax /= 2;
  }
  if (options.preserve_sparsity && min < 0.0F && max > 0.0F) {
    const std::int32_t half = (qmax - qmin) / 2;
    const auto lowest = static_cast<float>(-(half + 1));
    const auto highest = static_cast<float>(half);
    const float from_min = std::fabs(min / lowest);
    const float from_max = std::fabs(max / highest);
    const float step = from_min < from_max ? from_max : from_min;
    min = step * lowest;
    max = step * highest;
  }
  min = min < 0.0F ? min : 0.0F;
  max = max > 0.0F ? max : 0.0F;

  const double levels = static_cast<double>(qmax) - static_cast<double>(qmin);
  double scale = (static_cast<double>(max) - static_cast<double>(min)) / levels;
  if (static_cast<float>(scale) == 0.0F || std::isinf(1.0F / static_cast<float>(scale)))
    scale = 0.1;
  if (options.force_power_of_two) {
    scale = scale < 1.0 ? 1.0 / std::exp2(std::floor(std::log2(1.0 / scale)))
                        : std::exp2(std::ceil(std::log2(scale)));
  }
  if (options.of_fbgemm) scale = static_cast<double>(static_cast<float>(scale));

  // A scale below this makes 1 / scale too large for the kernels' float32 arithmetic.
  constexpr float kSmallestScale = 6.1e-5F;
  if (scale < static_cast<double>(kSmallestScale)) {
    const auto chosen = static_cast<float>(scale);
    scale = static_cast<double>(kSmallestScale);
    if (min == 0.0F) {
      max = kSmallestScale * static_cast<float>(qmax - qmin);
    } else if (max == 0.0F) {
      min = -kSmallestScale * static_cast<float>(qmax - qmin);
    } else {
      const float amplifier = kSmallestScale / chosen;
      min *= amplifier;
      max *= amplifier;
    }
  }

  const double low_steps = static_cast<double>(min) / scale;
  const double high_steps = static_cast<double>(max) / scale;
  // Torch's copy subtracts.
  const double sign = options.of_fbgemm ? 1.0 : -1.0;
  const double error_low = std::fabs(static_cast<double>(qmin)) + sign * std::fabs(low_steps);
  const double error_high = std::fabs(static_cast<double>(qmax)) + sign * std::fabs(high_steps);
  double zero_point = error_low < error_high ? static_cast<double>(qmin) - low_steps
                                             : static_cast<double>(qmax) - high_steps;
  if (options.preserve_sparsity && min < 0.0F && max > 0.0F) {
    zero_point = (static_cast<double>(qmin) + static_cast<double>(qmax)) / 2.0;
  }
  // An infinite range has no zero point: the lowest code stands for one.
  if (zero_point != zero_point) zero_point = static_cast<double>(qmin);
  const double rounded =
      round_half_even(clamp(zero_point, static_cast<double>(qmin), static_cast<double>(qmax)));
  return {scale, static_cast<std::int64_t>(rounded)};
}

}  // namespace quanta::math
