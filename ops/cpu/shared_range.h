#pragma once

// Private: the smallest and the largest of floats that several threads write, part by part.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <mutex>

#include "quanta/ops/cpu/elementwise_kernels.h"

namespace quanta::cpu {

/// Of no numbers yet.
inline constexpr FloatRange kNoRange{std::numeric_limits<float>::infinity(),
                                     -std::numeric_limits<float>::infinity()};

/// NaN, NaN when there is a NaN in one of them, as float_range says it.
inline FloatRange joined_range(const FloatRange& a, const FloatRange& b) {
  if (std::isnan(a.min)) return a;
  if (std::isnan(b.min)) return b;
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}

/// A running range, lane by lane. `finite` stays 0 until there is a number that is not.
struct RangeLanes {
  static constexpr std::size_t kLanes = 16;
  alignas(64) float min[kLanes];
  alignas(64) float max[kLanes];
  alignas(64) float finite[kLanes];

  RangeLanes() {
    std::fill_n(min, kLanes, kNoRange.min);
    std::fill_n(max, kLanes, kNoRange.max);
    std::fill_n(finite, kLanes, 0.0F);
  }
  /// NaN, NaN unless all numbers were finite.
  FloatRange all() const {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    if (!std::all_of(finite, finite + kLanes, [](float x) { return x == 0.0F; })) {
      return {kNaN, kNaN};
    }
    return {*std::min_element(min, min + kLanes), *std::max_element(max, max + kLanes)};
  }
};

class SharedRange {
 public:
  void add(const FloatRange& part) {
    const std::scoped_lock lock(mutex_);
    range_ = joined_range(range_, part);
  }
  /// Once all parts are there.
  const FloatRange& get() const noexcept { return range_; }

 private:
  std::mutex mutex_;
  FloatRange range_ = kNoRange;
};

}  // namespace quanta::cpu
