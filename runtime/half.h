#pragma once

#include <bit>
#include <cstdint>

#include "quanta/runtime/float_format.h"
#include "quanta/runtime/host_device.h"

/// Conversions between float32 and the floating point dtypes of tensors, as bit patterns. Rounding
/// is to nearest, ties to even. Those of 16 bits are written out because they are hot; the tests
/// hold them to float_format.h, which the others call. Nothing here throws, and many threads may
/// call it at once.
namespace quanta::math {

/// IEEE half -> float32, exact.
QUANTA_HOST_DEVICE inline float float16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent == 0) {
    // Subnormal: mantissa * 2^-24, exact in float32.
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-08F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

/// float32 -> IEEE half; too large becomes infinity, NaN stays NaN (quiet).
QUANTA_HOST_DEVICE inline std::uint16_t float_to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // >= 65520
  if (magnitude < 0x38800000U) {
    // Below 2^-14: adding 0.5 aligns the half's last bit with the float's, so the addition rounds.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3F000000U));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

/// bfloat16 -> float32, exact.
QUANTA_HOST_DEVICE inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// float32 -> bfloat16; NaN becomes 0x7FC0 with its sign.
QUANTA_HOST_DEVICE inline std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U)
    return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | 0x7FC0U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// The formats are copied within functions: device code cannot refer to the host's constants.

/// float8 e4m3fn (no infinity, 0x7F is NaN) -> float32, exact.
QUANTA_HOST_DEVICE inline float float8_e4m3fn_to_float(std::uint8_t bits) {
  constexpr FloatFormat kFormat = kE4M3FN;
  return decode_float(bits, kFormat);
}

/// float32 -> float8 e4m3fn as torch casts: beyond 448 (after rounding) becomes NaN.
QUANTA_HOST_DEVICE inline std::uint8_t float_to_float8_e4m3fn(float value) {
  constexpr FloatFormat kFormat = kE4M3FN;
  return static_cast<std::uint8_t>(encode_float(value, kFormat, Overflow::Special));
}

/// float8 e5m2 -> float32, exact.
QUANTA_HOST_DEVICE inline float float8_e5m2_to_float(std::uint8_t bits) {
  constexpr FloatFormat kFormat = kE5M2;
  return decode_float(bits, kFormat);
}

/// float32 -> float8 e5m2; too large becomes infinity, NaN stays NaN.
QUANTA_HOST_DEVICE inline std::uint8_t float_to_float8_e5m2(float value) {
  constexpr FloatFormat kFormat = kE5M2;
  return static_cast<std::uint8_t>(encode_float(value, kFormat, Overflow::Special));
}

}  // namespace quanta::math
