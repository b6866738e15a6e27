#pragma once

// Private: how analyzers make a range of what they saw.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "quanta/observers/aimet/analyzer.h"

namespace quanta::aimet::detail {

struct Ends {
  float min;
  float max;
};

/// Whether a symmetric range of two bits leaves out its lowest code, so that no code is wasted.
enum class TwoBitRule : bool { None, SkipLowestCode };

inline Ends clamp_to_finite(Ends ends) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return {std::clamp(ends.min, -kMost, kMost), std::clamp(ends.max, -kMost, kMost)};
}

/// A range that includes 0 and is at least num_steps minimum scales wide; a symmetric one has ends
/// that are -ceil(n / 2) and floor(n / 2) times one scale.
inline Ends widen(Ends ends, std::int64_t num_steps, bool symmetric, TwoBitRule rule) {
  const auto n = static_cast<float>(num_steps);
  const std::int64_t half = num_steps / 2;
  const auto positive = static_cast<float>(half);
  const auto negative = static_cast<float>(num_steps - half);
  const float smallest = minimum_scale(num_steps);
  float low = ends.min < 0.0F ? ends.min : 0.0F;
  float high = ends.max > 0.0F ? ends.max : 0.0F;
  const float added = (high - low) / n < smallest ? smallest : 0.0F;
  if (!symmetric) return clamp_to_finite({low, high + n * added});
  high += positive * added;
  low -= negative * added;
  const bool skips = rule == TwoBitRule::SkipLowestCode && num_steps == 3;
  const float delta = std::max(high / (positive + (skips ? 1.0F : 0.0F)), -low / negative);
  return clamp_to_finite({-negative * delta, positive * delta});
}

}  // namespace quanta::aimet::detail
