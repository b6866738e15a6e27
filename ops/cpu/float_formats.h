#pragma once

// Private: the loops of small float formats: fake casts with scales, pairs of 4-bit codes in bytes.
// Vectors give the bits of the scalar functions on every instruction set. Arrays of codes are in
// runtime/detail/float_casts.h.

#include <cstdint>

#include "quanta/ops/cpu/affine_rows.h"
#include "quanta/runtime/float_format.h"

namespace quanta::cpu {

/// Whether values are divided by the scale and multiplied by it again, or multiplied by it and then
/// by an `unscale`.
enum class FloatScaling : std::uint8_t { Divide, Multiply };

struct FloatRounding {
  math::FloatFormat format;
  FloatScaling scaling = FloatScaling::Divide;
  math::Overflow overflow = math::Overflow::Saturate;
  math::NanRule nan = math::NanRule::Keep;
};

/// Divide: round(x / scale) * scale. Multiply: round(x * scale) * unscale.
inline float round_scaled(float x, float scale, float unscale, const FloatRounding& to) {
  const bool divide = to.scaling == FloatScaling::Divide;
  const float scaled = divide ? x / scale : x * scale;
  return math::round_to_format(scaled, to.format, to.overflow, to.nan) * (divide ? scale : unscale);
}

/// `count` neighbours with one pair of parameters (step 0), or with one for each (step 1).
struct RoundingRun {
  const float* src;
  std::int64_t count;
  const float* scale;
  const float* unscale;
  std::int64_t step;
  float* dst;
};

/// dst = round_scaled of every element of `src`, with the parameters that the layout gives it.
/// `unscale` may be null for FloatScaling::Divide. `src` may be `dst`.
void round_to_format(const float* src, const AffineLayout& layout, const FloatRounding& rounding,
                     const float* scale, const float* unscale, float* dst);

/// Which half of a byte holds the first of two codes.
enum class FirstCode : std::uint8_t { Low, High };

/// dst[i] = the low four bits of src[2 i] and src[2 i + 1], for `pairs` bytes.
void pack_pairs(const std::uint8_t* src, std::int64_t pairs, FirstCode first, std::uint8_t* dst);
/// The reverse: two codes below 16 for each byte.
void unpack_pairs(const std::uint8_t* src, std::int64_t pairs, FirstCode first, std::uint8_t* dst);

}  // namespace quanta::cpu
