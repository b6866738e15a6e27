#pragma once

// Private: the smallest and the largest of floats that several threads write, part by part.

#include <algorithm>
#include <cmath>
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

/// What Operation::with_range tells: NaN, NaN when a number was not finite.
inline FloatRange told_range(const FloatRange& range) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  return std::isfinite(range.min) && std::isfinite(range.max) ? range : FloatRange{kNaN, kNaN};
}

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
