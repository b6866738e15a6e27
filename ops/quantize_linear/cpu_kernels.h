#pragma once

// Private: SIMD kernels of quantization by division.

#include <cstdint>

#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {

/// q = clamp(round_half_even(x / scale) + zero_point, min, max); NaN gives min. Ranges of 16 bits
/// or fewer.
inline std::int32_t quantize_quotient(float x, float scale, std::int32_t zero_point,
                                      std::int32_t min, std::int32_t max) {
  // The ends are integers, and a product with 1 changes nothing.
  return math::quantize(x / scale, 1.0F, zero_point, min, max, min);
}

/// The same over `count` neighbours, with all codes of the dtype. `dst` may not be `src`.
void quantize_quotients(const float* src, std::uint8_t* dst, std::int64_t count, float scale,
                        std::int32_t zero_point);
void quantize_quotients(const float* src, std::int8_t* dst, std::int64_t count, float scale,
                        std::int32_t zero_point);

}  // namespace quanta::cpu
