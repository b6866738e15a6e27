#pragma once

#include <cmath>
#include <cstdint>

#include "quanta/runtime/float_format.h"
#include "quanta/runtime/host_device.h"

/// The scalar arithmetic of dynamic block quantization: a block's scale from its largest magnitude,
/// its elements in a small float format. Kernels and tests include this. Nothing here throws, and
/// many threads may call it at once.
namespace quanta::math {

// Element formats that exist in blocks only. Integers without the lowest code are steps without an
// exponent.
QUANTA_HOST_DEVICE constexpr FloatFormat block_integers(int bits) noexcept {
  return {0, bits - 1, 2 - bits, FloatFormat::Specials::None};
}
inline constexpr FloatFormat kBlockInt8 = block_integers(8);
inline constexpr FloatFormat kE3M0{3, 0, 3, FloatFormat::Specials::None};

/// How the scale of a block is kept.
enum class BlockScaleKind : std::uint8_t {
  PowerOfTwo,  ///< E8M0, never so small that the block's largest element overflows
  TwoLevel,    ///< a small float times a factor that follows from the tensor's largest magnitude
  Plain,       ///< a small float
  Unrounded,   ///< a float32
};

struct BlockFormat {
  FloatFormat element = kE2M1;
  BlockScaleKind kind = BlockScaleKind::PowerOfTwo;
  FloatFormat scale = kE4M3FN;  ///< TwoLevel and Plain only
  float global_amax = 0.0F;     ///< TwoLevel only
};

/// Elements are multiplied by `scale`, rounded, and multiplied by `unscale`.
struct BlockScale {
  float scale = 1.0F;
  float unscale = 1.0F;
};

/// The scale of a block with this largest magnitude: 1 where that is 0, infinite or NaN. Both
/// numbers are 0 when the scale rounds to 0 or is too small to be inverted, so that the block
/// becomes 0.
QUANTA_HOST_DEVICE inline BlockScale block_scale(float amax, const BlockFormat& format) {
  if (amax == 0.0F || !std::isfinite(amax)) return {};
  const float max = format.element.max();
  switch (format.kind) {
    case BlockScaleKind::PowerOfTwo: {
      const int exponent = static_cast<int>(float_to_e8m0_up(amax / max)) - 127;
      return {power_of_two(-exponent), power_of_two(exponent)};
    }
    case BlockScaleKind::TwoLevel: {
      const float global = format.global_amax;
      if (global == 0.0F || !std::isfinite(global)) return {};
      // The original's order and precision: a quotient of floats, then doubles.
      const double factor =
          static_cast<double>(format.scale.max()) * static_cast<double>(max / global);
      const auto scaled = static_cast<float>(static_cast<double>(amax / max) * factor);
      const double unscale = static_cast<double>(round_to_format(scaled, format.scale)) / factor;
      if (unscale == 0.0) return {0.0F, 0.0F};
      return {static_cast<float>(1.0 / unscale), static_cast<float>(unscale)};
    }
    case BlockScaleKind::Plain: {
      const float unscale = round_to_format(1.0F / (max / amax), format.scale);
      if (unscale == 0.0F) return {0.0F, 0.0F};
      return {1.0F / unscale, unscale};
    }
    case BlockScaleKind::Unrounded: {
      const float scale = max / amax;
      if (!std::isfinite(scale)) return {0.0F, 0.0F};
      return {scale, amax / max};
    }
  }
  return {};
}

/// To nearest and saturating. Ties go to the even mantissa, in E3M0 away from zero.
QUANTA_HOST_DEVICE inline float round_block_element(float x, const FloatFormat& format) {
  constexpr FloatFormat kTiesAway = kE3M0;  // device code cannot refer to the host's constants
  // E3M0's smallest number is a normal one: half of it is the only tie that would go to zero.
  if (format == kTiesAway && std::fabs(x) == 0.125F) return std::copysign(0.25F, x);
  return round_to_format(x, format, Overflow::Saturate, NanRule::Saturate);
}

}  // namespace quanta::math
