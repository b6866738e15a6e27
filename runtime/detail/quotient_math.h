#pragma once

#include <cstdint>

#include "quanta/runtime/host_device.h"
#include "quanta/runtime/quant_math.h"

// The scalar arithmetic of quantization by division, as ONNX defines it, once for CPU and CUDA.
// Nothing throws, and many threads may call it at once.

namespace quanta::math {

/// q = clamp(round_half_even(x / scale) + zero_point, min, max); NaN gives min. Ranges of 16 bits
/// or fewer.
QUANTA_HOST_DEVICE inline std::int32_t quantize_quotient(float x, float scale,
                                                         std::int32_t zero_point, std::int32_t min,
                                                         std::int32_t max) {
  // The ends are integers, and a product with 1 changes nothing.
  return quantize(x / scale, 1.0F, zero_point, min, max, min);
}

/// Scale and zero point of codes 0..255.
struct QuotientParams {
  float scale = 1.0F;
  std::int32_t zero_point = 0;
};

/// As ONNX's DynamicQuantizeLinear chooses them for numbers from `min` to `max`.
QUANTA_HOST_DEVICE inline QuotientParams choose_quotient(float min, float max) {
  // As std::min(min, 0) and std::max(max, 0), NaN stays.
  const float low = 0.0F < min ? 0.0F : min;
  const float high = max < 0.0F ? 0.0F : max;
  const float scale = high == low ? 1.0F : (high - low) / 255.0F;
  const float zero = clamp(round_half_even(0.0F - low / scale), 0.0F, 255.0F);
  return {scale, zero == zero ? static_cast<std::int32_t>(zero) : 0};
}

}  // namespace quanta::math
