#include "quanta/runtime/float_format.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "quanta/runtime/half.h"
#include "support/capture_binding.h"

namespace quanta::math {
namespace {

struct Named {
  const char* name;
  FloatFormat format;
};

const Named kFormats[] = {{"float16", kFloat16},
                          {"bfloat16", kBFloat16},
                          {"e4m3fn", kE4M3FN},
                          {"e4m3fnuz", kE4M3FNUZ},
                          {"e5m2", kE5M2},
                          {"e5m2fnuz", kE5M2FNUZ},
                          {"e3m2", kE3M2},
                          {"e2m3", kE2M3},
                          {"e2m1", kE2M1},
                          {"e1m2", kE1M2},
                          {"e0m3", kE0M3},
                          {"e3m0", {3, 0, 3, FloatFormat::Specials::None}},
                          {"e0m7", {0, 7, -6, FloatFormat::Specials::None}},
                          {"e4m3 as IEEE", {4, 3, 7, FloatFormat::Specials::Ieee}},
                          {"e8m3", {8, 3, 127, FloatFormat::Specials::Ieee}},
                          {"e6m9", {6, 9, 31, FloatFormat::Specials::None}}};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

static_assert(kFloat16.max() == 65504.0F && kFloat16.bits() == 16);
static_assert(kBFloat16.max() == 3.3895313892515355e38F && kBFloat16.bits() == 16);
static_assert(kE4M3FN.max() == 448.0F && kE4M3FN.bits() == 8);
static_assert(kE4M3FNUZ.max() == 240.0F && kE5M2FNUZ.max() == 57344.0F);
static_assert(kE5M2.max() == 57344.0F && kE5M2.has_infinity());
static_assert(kE3M2.max() == 28.0F && kE2M3.max() == 7.5F && kE2M1.max() == 6.0F);
static_assert(kE1M2.max() == 3.5F && kE0M3.max() == 7.0F);

// The finite magnitudes of a format in rising order, as the definition gives them.
std::vector<double> magnitudes(const FloatFormat& format) {
  std::vector<double> values;
  for (int code = 0; code <= format.max_code(); ++code) {
    const int field = code >> format.mantissa_bits;
    const int mantissa = code & ((1 << format.mantissa_bits) - 1);
    const double fraction = std::ldexp(static_cast<double>(mantissa), -format.mantissa_bits);
    values.push_back(field == 0 ? std::ldexp(fraction, 1 - format.bias)
                                : std::ldexp(1.0 + fraction, field - format.bias));
  }
  return values;
}

// Whether a number is an even multiple of the step that its own exponent has.
bool even(double magnitude, const FloatFormat& format) {
  const int exponent = std::max(magnitude == 0.0 ? -1000 : std::ilogb(magnitude), 1 - format.bias);
  return std::fmod(std::ldexp(magnitude, format.mantissa_bits - exponent), 2.0) == 0.0;
}

// To nearest by search. A tie goes to the even multiple of the smaller neighbour's step.
double nearest(double magnitude, const std::vector<double>& values, const FloatFormat& format) {
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  if (above == values.end()) return values.back();
  if (above == values.begin()) return *above;
  const double high = *above;
  const double low = *(above - 1);
  if (magnitude - low != high - magnitude) return magnitude - low < high - magnitude ? low : high;
  return even(low, format) ? low : high;
}

TEST_CASE("float formats: numbers of all codes are those of the definition") {
  for (const auto& [name, format] : kFormats) {
    CAPTURE_BINDING(std::string(name));
    const std::vector<double> values = magnitudes(format);
    for (std::size_t code = 0; code < values.size(); ++code) {
      const float value = decode_float(static_cast<std::uint16_t>(code), format);
      REQUIRE(static_cast<double>(value) == values[code]);
      const float negative =
          decode_float(static_cast<std::uint16_t>(code | format.sign_bit()), format);
      if (format.unsigned_zero() && code == 0) {
        REQUIRE(negative != negative);
      } else {
        REQUIRE(bits_of(negative) == bits_of(-value));
      }
    }
    REQUIRE(static_cast<double>(format.max()) == values.back());
  }
}

TEST_CASE("float formats: every code survives decoding and encoding") {
  for (const auto& [name, format] : kFormats) {
    CAPTURE_BINDING(std::string(name));
    for (std::uint32_t i = 0; i < 2U * format.sign_bit(); ++i) {
      const auto code = static_cast<std::uint16_t>(i);
      CAPTURE(code);
      const float value = decode_float(code, format);
      for (const Overflow overflow : {Overflow::Saturate, Overflow::Special}) {
        const std::uint16_t back = encode_float(value, format, overflow);
        if (value != value) {
          const float again = decode_float(back, format);
          REQUIRE(again != again);
        } else if (std::isinf(value) && overflow == Overflow::Saturate) {
          REQUIRE(decode_float(back, format) == std::copysign(format.max(), value));
        } else {
          REQUIRE(back == code);
          REQUIRE(bits_of(round_to_format(value, format, overflow)) == bits_of(value));
        }
      }
    }
  }
}

TEST_CASE("float formats: ties and their neighbours round as a search over all numbers does") {
  for (const auto& [name, format] : kFormats) {
    CAPTURE_BINDING(std::string(name));
    const std::vector<double> values = magnitudes(format);
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
      const auto tie = static_cast<float>((values[i] + values[i + 1]) / 2.0);
      for (const float x : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, kInfinity)}) {
        const double expected = nearest(static_cast<double>(x), values, format);
        CAPTURE(x);
        REQUIRE(static_cast<double>(round_to_format(x, format)) == expected);
        REQUIRE(static_cast<double>(round_to_format(-x, format)) == -expected);
        REQUIRE(static_cast<double>(decode_float(encode_float(x, format), format)) == expected);
      }
    }
  }
}

TEST_CASE("float formats: float32 in steps through all of its exponents rounds to the nearest") {
  for (const auto& [name, format] : kFormats) {
    CAPTURE_BINDING(std::string(name));
    const std::vector<double> values = magnitudes(format);
    for (std::uint64_t bits = 0; bits < 0x7F800000U; bits += 65521) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      CAPTURE(x);
      REQUIRE(static_cast<double>(round_to_format(x, format)) ==
              nearest(static_cast<double>(x), values, format));
    }
  }
}

TEST_CASE("float formats: what lies beyond the largest number saturates or becomes special") {
  for (const auto& [name, format] : kFormats) {
    CAPTURE_BINDING(std::string(name));
    const float max = format.max();
    for (const float sign : {1.0F, -1.0F}) {
      for (const float x : {kInfinity, std::numeric_limits<float>::max()}) {
        CHECK(round_to_format(sign * x, format) == sign * max);
        const float special = round_to_format(sign * x, format, Overflow::Special);
        if (format.has_infinity()) CHECK(special == sign * kInfinity);
        if (!format.has_infinity() && format.has_nan()) CHECK(special != special);
        if (!format.has_nan()) CHECK(special == sign * max);
      }
    }
    const float kept = round_to_format(kNan, format);
    CHECK(kept != kept);
    const float saturated = round_to_format(kNan, format, Overflow::Saturate, NanRule::Saturate);
    CHECK((format.has_nan() ? saturated != saturated : saturated == max));
    const float decoded = decode_float(encode_float(kNan, format), format);
    CHECK((format.has_nan() ? decoded != decoded : decoded == max));
    CHECK(std::signbit(round_to_format(-0.0F, format)) == !format.unsigned_zero());
    CHECK(std::signbit(round_to_format(-1e-45F, format)) ==
          (!format.unsigned_zero() || round_to_format(-1e-45F, format) != 0.0F));
  }
}

TEST_CASE("half.h: all codes decode and float32 encodes as the general arithmetic has it") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto code = static_cast<std::uint16_t>(i);
    REQUIRE(bits_of(float16_to_float(code)) == bits_of(decode_float(code, kFloat16)));
    REQUIRE(bits_of(bfloat16_to_float(code)) == bits_of(decode_float(code, kBFloat16)));
  }
  const auto check = [](float x) {
    CAPTURE(x);
    REQUIRE(float_to_float16(x) == encode_float(x, kFloat16, Overflow::Special));
    REQUIRE(float_to_bfloat16(x) == encode_float(x, kBFloat16, Overflow::Special));
  };
  for (std::uint64_t bits = 0; bits < 0x100000000U; bits += 4093) {
    check(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const FloatFormat& format : {kFloat16, kBFloat16}) {
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const float value = decode_float(static_cast<std::uint16_t>(i), format);
      // Halfway to the next number, and the float32 neighbours of both.
      const std::uint32_t half = 1U << (22 - format.mantissa_bits);
      for (const std::uint32_t offset : {0U, 1U, half - 1U, half, half + 1U}) {
        check(std::bit_cast<float>(bits_of(value) + offset));
      }
    }
  }
}

TEST_CASE("half.h: float8 encodes what lies beyond as torch casts") {
  CHECK(float_to_float8_e4m3fn(464.0F) == 0x7E);
  CHECK(float_to_float8_e4m3fn(std::nextafter(464.0F, 500.0F)) == 0x7F);
  CHECK(float_to_float8_e4m3fn(-kInfinity) == 0xFF);
  CHECK(float_to_float8_e5m2(std::nextafter(61440.0F, 0.0F)) == 0x7B);
  CHECK(float_to_float8_e5m2(61440.0F) == 0x7C);
  CHECK(float_to_float8_e5m2(kNan) == 0x7F);
}

TEST_CASE("e8m0: codes are powers of two and the nearest one is found with halves going up") {
  for (int code = 0; code < 255; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    const float value = e8m0_to_float(bits);
    REQUIRE(static_cast<double>(value) == std::ldexp(1.0, code - 127));
    REQUIRE(float_to_e8m0(value) == code);
    REQUIRE(float_to_e8m0(-value) == code);
    REQUIRE(float_to_e8m0_up(value) == code);
    if (code == 254) continue;
    REQUIRE(float_to_e8m0_up(std::nextafter(value, kInfinity)) == code + 1);
    REQUIRE(float_to_e8m0(1.5F * value) == code + 1);
    // torch takes whatever is above 2^-127 to 2^-126.
    REQUIRE(float_to_e8m0(1.4375F * value) == (code == 0 ? 1 : code));
  }
  CHECK(e8m0_to_float(255) != e8m0_to_float(255));
  CHECK(float_to_e8m0(kInfinity) == 255);
  CHECK(float_to_e8m0(std::numeric_limits<float>::max()) == 255);
  CHECK(float_to_e8m0(0.0F) == 0);
  CHECK(float_to_e8m0_up(std::numeric_limits<float>::max()) == 254);
}

}  // namespace
}  // namespace quanta::math
