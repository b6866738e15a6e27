#pragma once

#include <bit>
#include <cstdint>

/// The arithmetic of small floating point formats, once, for any split into exponent and mantissa:
/// every kernel and test that rounds to one of them, or packs its bits, includes this. Nothing here
/// throws, and many threads may call it at once.
namespace quanta::math {

/// A binary floating point format that fits into 16 bits, and into float32:
///
///   exponent field 0:  mantissa * 2^(1 - bias - M)                  zero and subnormals
///   otherwise:         (1 + mantissa * 2^-M) * 2^(field - bias)
///
/// but for the codes that `specials` sets aside. With M = 0 there are no subnormals but zero, with
/// E = 0 nothing else. Needs 1 - bias >= -126, so that steps are powers of two in float32.
struct FloatFormat {
  enum class Specials : std::uint8_t {
    Ieee,          ///< the top exponent holds infinity and NaN
    Nan,           ///< the code of all ones is NaN; no infinity ("fn")
    NegativeZero,  ///< the code of -0 is NaN; neither infinity nor -0 ("fnuz")
    None,          ///< every code is a finite number
  };

  int exponent_bits = 0;
  int mantissa_bits = 0;
  int bias = 0;
  Specials specials = Specials::Ieee;

  constexpr int bits() const noexcept { return 1 + exponent_bits + mantissa_bits; }
  constexpr bool has_infinity() const noexcept { return specials == Specials::Ieee; }
  constexpr bool has_nan() const noexcept { return specials != Specials::None; }
  constexpr bool finite_only() const noexcept { return !has_infinity(); }
  constexpr bool unsigned_zero() const noexcept { return specials == Specials::NegativeZero; }
  constexpr bool operator==(const FloatFormat&) const = default;

  constexpr std::uint16_t sign_bit() const noexcept {
    return static_cast<std::uint16_t>(1U << (exponent_bits + mantissa_bits));
  }
  /// The code of the largest number.
  constexpr std::uint16_t max_code() const noexcept {
    switch (specials) {
      case Specials::Ieee:
        return static_cast<std::uint16_t>(sign_bit() - (1U << mantissa_bits) - 1U);
      case Specials::Nan:
        return static_cast<std::uint16_t>(sign_bit() - 2U);
      case Specials::NegativeZero:
      case Specials::None:
        break;
    }
    return static_cast<std::uint16_t>(sign_bit() - 1U);
  }
  /// The exponents of the smallest normal number and of the smallest step.
  constexpr int min_exponent() const noexcept { return 1 - bias; }
  constexpr int step_exponent() const noexcept { return 1 - bias - mantissa_bits; }
  /// The largest number.
  constexpr float max() const noexcept;
};

inline constexpr FloatFormat kFloat16{5, 10, 15, FloatFormat::Specials::Ieee};
inline constexpr FloatFormat kBFloat16{8, 7, 127, FloatFormat::Specials::Ieee};
inline constexpr FloatFormat kE4M3FN{4, 3, 7, FloatFormat::Specials::Nan};
inline constexpr FloatFormat kE4M3FNUZ{4, 3, 8, FloatFormat::Specials::NegativeZero};
inline constexpr FloatFormat kE5M2{5, 2, 15, FloatFormat::Specials::Ieee};
inline constexpr FloatFormat kE5M2FNUZ{5, 2, 16, FloatFormat::Specials::NegativeZero};
// The element types of OCP's microscaling formats, and what ModelOpt has beside them.
inline constexpr FloatFormat kE3M2{3, 2, 3, FloatFormat::Specials::None};
inline constexpr FloatFormat kE2M3{2, 3, 1, FloatFormat::Specials::None};
inline constexpr FloatFormat kE2M1{2, 1, 1, FloatFormat::Specials::None};
inline constexpr FloatFormat kE1M2{1, 2, 0, FloatFormat::Specials::None};
inline constexpr FloatFormat kE0M3{0, 3, -2, FloatFormat::Specials::None};

/// 2^exponent for -149 <= exponent <= 127.
constexpr float power_of_two(int exponent) noexcept {
  return exponent >= -126 ? std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23)
                          : std::bit_cast<float>(std::uint32_t{1} << (exponent + 149));
}

/// What becomes of a number beyond the largest one (after rounding), and of infinity.
enum class Overflow : std::uint8_t {
  Saturate,  ///< the largest number of its sign
  Special,   ///< infinity, else NaN; the largest number where the format has neither
};

/// What becomes of NaN in round_to_format, for formats that have none themselves.
enum class NanRule : std::uint8_t { Keep, Saturate };

namespace detail {

inline constexpr std::uint32_t kFloatSign = 0x80000000U;
inline constexpr std::uint32_t kFloatInfinity = 0x7F800000U;
inline constexpr std::uint32_t kFloatNan = 0x7FC00000U;

/// A finite magnitude to the next number with a mantissa of M bits and no step below the format's,
/// as if exponents had no upper end. Ties go to the even multiple of the step.
constexpr float round_magnitude(float magnitude, const FloatFormat& format) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  if (magnitude < power_of_two(format.min_exponent())) {
    // Adding 2^23 steps aligns the last bits, so that the addition rounds.
    const float aligned = power_of_two(format.step_exponent() + 23);
    return (magnitude + aligned) - aligned;
  }
  const int dropped = 23 - format.mantissa_bits;
  // Without a mantissa the significand is the hidden 1, which is odd.
  const std::uint32_t odd = format.mantissa_bits == 0 ? 1U : (bits >> dropped) & 1U;
  const std::uint32_t half = 1U << (dropped - 1);
  return std::bit_cast<float>((bits + half - 1U + odd) & ~((1U << dropped) - 1U));
}

}  // namespace detail

/// The number of a code; exact. Bits above the format's are ignored. NaN of formats with infinity
/// keeps its payload.
constexpr float decode_float(std::uint16_t code, const FloatFormat& format) noexcept {
  const std::uint32_t sign = (code & format.sign_bit()) != 0 ? detail::kFloatSign : 0U;
  const std::uint32_t magnitude = code & (format.sign_bit() - 1U);
  const std::uint32_t field = magnitude >> format.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1U << format.mantissa_bits) - 1U);
  if (magnitude > format.max_code()) {
    const std::uint32_t special =
        format.has_infinity() ? detail::kFloatInfinity | mantissa << (23 - format.mantissa_bits)
                              : detail::kFloatNan;
    return std::bit_cast<float>(sign | special);
  }
  if (format.unsigned_zero() && magnitude == 0 && sign != 0) {
    return std::bit_cast<float>(sign | detail::kFloatNan);
  }
  if (field == 0) {
    const float value = static_cast<float>(mantissa) * power_of_two(format.step_exponent());
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  const auto exponent = static_cast<std::uint32_t>(static_cast<int>(field) + 127 - format.bias);
  return std::bit_cast<float>(sign | exponent << 23 | mantissa << (23 - format.mantissa_bits));
}

constexpr float FloatFormat::max() const noexcept { return decode_float(max_code(), *this); }

/// float32 -> the format -> float32 ("fake cast"): to nearest, ties to even. NaN follows `nan`
/// where the format has none, and stays NaN elsewhere.
constexpr float round_to_format(float value, const FloatFormat& format,
                                Overflow overflow = Overflow::Saturate,
                                NanRule nan = NanRule::Keep) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits & detail::kFloatSign;
  const float magnitude = std::bit_cast<float>(bits & ~detail::kFloatSign);
  const float max = format.max();
  const auto with_sign = [sign](float result) {
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(result));
  };
  if (magnitude != magnitude) {
    return format.has_nan() || nan == NanRule::Keep ? value : with_sign(max);
  }
  const bool infinite = magnitude > 3.40282347e+38F;
  const float rounded = infinite ? magnitude : detail::round_magnitude(magnitude, format);
  if (rounded > max) {
    if (overflow == Overflow::Saturate || !format.has_nan()) return with_sign(max);
    // A copy: nvcc takes no address of these constants, which a reference to them would need.
    const std::uint32_t special =
        format.has_infinity() ? detail::kFloatInfinity : detail::kFloatNan;
    return with_sign(std::bit_cast<float>(special));
  }
  return format.unsigned_zero() && rounded == 0.0F ? 0.0F : with_sign(rounded);
}

/// The code of NaN: torch's, which has every mantissa bit set in 8 bits and one in 16.
constexpr std::uint16_t nan_code(bool negative, const FloatFormat& format) noexcept {
  const std::uint32_t sign = negative ? format.sign_bit() : 0U;
  switch (format.specials) {
    case FloatFormat::Specials::NegativeZero:
      return format.sign_bit();
    case FloatFormat::Specials::None:
      return static_cast<std::uint16_t>(sign | format.max_code());
    case FloatFormat::Specials::Ieee:
      if (format.bits() > 8) {
        return static_cast<std::uint16_t>(sign | (format.max_code() + 1U) |
                                          1U << (format.mantissa_bits - 1));
      }
      break;
    case FloatFormat::Specials::Nan:
      break;
  }
  return static_cast<std::uint16_t>(sign | (format.sign_bit() - 1U));
}

/// The code of a number that the format holds exactly, or of infinity or NaN. NaN becomes the
/// largest number where the format has none.
constexpr std::uint16_t code_of(float exact, const FloatFormat& format) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(exact);
  const bool negative = (bits & detail::kFloatSign) != 0;
  const std::uint32_t magnitude = bits & ~detail::kFloatSign;
  if (magnitude > detail::kFloatInfinity) return nan_code(negative, format);
  const std::uint32_t sign = negative ? format.sign_bit() : 0U;
  if (magnitude == detail::kFloatInfinity) {
    return static_cast<std::uint16_t>(sign | (format.max_code() + 1U));
  }
  const float value = std::bit_cast<float>(magnitude);
  if (value < power_of_two(format.min_exponent())) {
    const float steps = value / power_of_two(format.step_exponent());
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(steps));
  }
  const auto offset = static_cast<std::uint32_t>(127 - format.bias) << format.mantissa_bits;
  return static_cast<std::uint16_t>(sign | ((magnitude >> (23 - format.mantissa_bits)) - offset));
}

/// float32 -> code: round_to_format, as bits.
constexpr std::uint16_t encode_float(float value, const FloatFormat& format,
                                     Overflow overflow = Overflow::Saturate) noexcept {
  return code_of(round_to_format(value, format, overflow), format);
}

/// E8M0, the scale of microscaling formats: 2^(code - 127), unsigned, without zero; 255 is NaN.
constexpr float e8m0_to_float(std::uint8_t code) noexcept {
  const std::uint32_t nan = detail::kFloatNan;
  return code == 255 ? std::bit_cast<float>(nan) : power_of_two(static_cast<int>(code) - 127);
}

/// float32 -> E8M0 to the nearest, as torch casts: 1.5 * 2^k goes up, the sign is ignored, what is
/// too small becomes 2^-127, what lies between that and 2^-126 the latter; infinity and NaN become
/// NaN, and so does what rounds to 2^128.
constexpr std::uint8_t float_to_e8m0(float value) noexcept {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & ~detail::kFloatSign;
  const std::uint32_t field = magnitude >> 23;
  if (field == 255) return 255;
  const std::uint32_t rest = magnitude & 0x7FFFFFU;
  const bool up = field > 0 ? rest >= 0x400000U : rest > 0x400000U;
  return static_cast<std::uint8_t>(field + (up ? 1U : 0U));
}

/// The smallest power of two that is not below a positive `value`, within 2^-127..2^127: the rule
/// of scales that must not let a block overflow.
constexpr std::uint8_t float_to_e8m0_up(float value) noexcept {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & ~detail::kFloatSign;
  const std::uint32_t field = magnitude >> 23;
  const std::uint32_t rest = magnitude & 0x7FFFFFU;
  const bool up = rest > 0 && field < 254 && !(field == 0 && rest <= 0x400000U);
  return static_cast<std::uint8_t>(field < 254 ? field + (up ? 1U : 0U) : 254U);
}

}  // namespace quanta::math
