#pragma once

// Private: what resample_kernels.cpp knows outside of Highway's targets.

#include <array>
#include <cstdint>

#include "quanta/runtime/detail/resample_math.h"

namespace quanta::cpu {

/// Input lines that are blended along the width already, and the weights for the rest: one line
/// for one spatial dimension, low and high for two, those at the low and at the high depth for
/// three.
struct BlendLines {
  std::array<const float*, 4> line{};
  std::int64_t count = 1;
  float height_low = 1.0F;
  float height_high = 0.0F;
  float depth_low = 1.0F;
  float depth_high = 0.0F;
  std::int64_t pixel = 1;  ///< elements of a pixel
  bool is_fused = false;   ///< see math::first_single_channel
};

/// The scalar form of one output line, from element `begin` on.
template <int kLines, math::Fusing kFusing, typename T>
void blend_rest(const BlendLines& lines, std::int64_t begin, std::int64_t end, float zero_point,
                T* dst) {
  const auto along_height = [&](std::size_t first, std::int64_t i) {
    return math::blend_of<kFusing>(lines.height_low, lines.line[first][i], lines.height_high,
                                   lines.line[first + 1][i]);
  };
  for (std::int64_t i = begin; i < end; ++i) {
    float value = lines.line[0][i];
    if constexpr (kLines == 2) value = along_height(0, i);
    if constexpr (kLines == 4) {
      value = math::blend_of<kFusing>(lines.depth_low, along_height(0, i), lines.depth_high,
                                      along_height(2, i));
    }
    dst[i] = math::rounded_blend<T>(value, zero_point);
  }
}

}  // namespace quanta::cpu
