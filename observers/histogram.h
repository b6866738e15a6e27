#pragma once

#include <cstdint>
#include <limits>
#include <vector>

// Plain values: nothing here throws, and threads may share what none of them changes.

namespace quanta {

/// Values counted in bins that lie side by side. `Count` is float for torch's and AIMET's
/// histograms, whose bins are split when a range grows, and std::int64_t for ModelOpt's, whose
/// bins keep their width. A plain value.
template <typename Count>
struct Histogram {
  std::vector<Count> counts;
  /// Where the bins lie: one more than there are bins (ModelOpt's may have two more). Empty for
  /// bins of equal width from `min` to `max`.
  std::vector<float> edges;
  /// The smallest and the largest value counted; +inf and -inf before any data.
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();

  bool has_data() const noexcept {
    return min != std::numeric_limits<float>::infinity() &&
           max != -std::numeric_limits<float>::infinity();
  }
  bool operator==(const Histogram&) const = default;
};

}  // namespace quanta
