#pragma once

// Private: integer sums to codes, a channel with numbers of its own.

#include <cstdint>

namespace quanta::cpu {

/// Turns int32 sums into codes, a channel n at a time (runtime/quant_math.h, requantize):
///   q = clamp(zero_point + round_half_even(fma(bias[n], bias_factor, float(acc)) * multiplier[n]),
///             min, max)
/// zero_point, min and max lie in 0..255.
struct RequantizeParams {
  const float* bias = nullptr;        ///< [O], in units of 1 / bias_factor; null: 0
  const float* multiplier = nullptr;  ///< [O], sx * sw / s
  std::int32_t zero_point = 0;
  std::int32_t min = 0;
  std::int32_t max = 255;
  float bias_factor = 1.0F;
};

/// dst[r][n] = requantize(acc[r][n] + compensation[n]); compensation may be null. rows x channels,
/// both dense.
void requantize_rows(const std::int32_t* acc, const std::int32_t* compensation, std::int64_t rows,
                     std::int64_t channels, const RequantizeParams& requantize, std::uint8_t* dst);

}  // namespace quanta::cpu
