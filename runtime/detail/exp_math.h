#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "quanta/runtime/host_device.h"

// exp and log of floats, once for the CPU's vector code, which is tested against this, and for CUDA
// kernels. The floats are the same on every machine: each step is an IEEE operation, and a product
// and a sum are one operation only where fmaf says so. NaN stays. Nothing throws, and many threads
// may call it at once.

namespace quanta::math {

/// 2^power for whole numbers from -126 to 127.
QUANTA_HOST_DEVICE inline float normal_power_of_two(std::int32_t power) {
  return std::bit_cast<float>((power + 127) << 23);
}

/// y * 2^power for y in 0.5..2 and whole numbers from -252 to 254.
QUANTA_HOST_DEVICE inline float times_power_of_two(float y, float power) {
  // Two factors, because 2^power alone may be too small for a normal float.
  const auto exponent = static_cast<std::int32_t>(power);
  const std::int32_t half = exponent >> 1;
  return y * normal_power_of_two(half) * normal_power_of_two(exponent - half);
}

/// exp(x) within a unit in the last place, products and sums rounded one by one: of softmax, and of
/// exp, erf and gelu (exp_simd.h, cpu_math.cpp).
QUANTA_HOST_DEVICE inline float exp_float(float x) {
  if (x != x) return x;
  // Beyond these the result is 0 or infinite, and both factors of the power are still normal.
  const float at_least = x > -150.0F ? x : -150.0F;
  const float clamped = at_least < 129.0F ? at_least : 129.0F;
  const float power = nearbyintf(clamped * 1.44269504088896341F);
  // ln 2 in two parts, the first of so few bits that its product with `power` is exact.
  float r = clamped - power * 0.693359375F;
  r = r - power * -2.12194440e-4F;
  // Cephes' polynomial for |r| <= ln(2) / 2.
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  return times_power_of_two(p * (r * r) + r + 1.0F, power);
}

/// exp(-|x|) within a unit in the last place, with fused multiply-adds: of the gates of LSTM and GRU
/// (cpu_gate_simd.h).
QUANTA_HOST_DEVICE inline float exp_of_minus_size(float x) {
  if (x != x) return x;
  const float negative = -fabsf(x);
  const float limited = negative > -150.0F ? negative : -150.0F;  // exp(-150) is 0
  const float power = nearbyintf(limited * 1.44269504088896341F);
  float r = fmaf(power, -0.693359375F, limited);
  r = fmaf(power, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = fmaf(p, r, 1.3981999507e-3F);
  p = fmaf(p, r, 8.3334519073e-3F);
  p = fmaf(p, r, 4.1665795894e-2F);
  p = fmaf(p, r, 1.6666665459e-1F);
  p = fmaf(p, r, 5.0000001201e-1F);
  return times_power_of_two(fmaf(p, r * r, r) + 1.0F, power);
}

/// exp(x) for x <= 0 within 1e-7 of its size, and 0 below -87, with fused multiply-adds: of
/// attention (cpu_softmax_simd.h).
QUANTA_HOST_DEVICE inline float exp_normal(float x) {
  if (x < -87.0F) return 0.0F;
  // Adding 1.5 * 2^23 rounds; with 127 more the low bits are the exponent of the power of two.
  constexpr float kMagic = 12582912.0F + 127.0F;
  const float shifted = fmaf(x, 1.44269504088896341F, kMagic);
  const float power = shifted - kMagic;
  float r = fmaf(power, -0.693359375F, x);
  r = fmaf(power, 2.12194440e-4F, r);
  // 1 + r (1 + r p(r)) for |r| <= ln(2) / 2; p meets it at the Chebyshev nodes.
  float p = 1.3926213e-3F;
  p = fmaf(p, r, 8.363203e-3F);
  p = fmaf(p, r, 4.1666556e-2F);
  p = fmaf(p, r, 1.6666576e-1F);
  p = fmaf(p, r, 0.5F);
  const float y = fmaf(fmaf(p, r, 1.0F), r, 1.0F);
  return y * std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
}

/// log(x) calculated in double: libraries whose doubles are right within some units differ only
/// where the double lies that near to the middle between two floats, about once in 10^8 numbers.
QUANTA_HOST_DEVICE inline float log_float(float x) {
  return static_cast<float>(log(static_cast<double>(x)));
}

}  // namespace quanta::math
