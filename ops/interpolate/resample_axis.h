#pragma once

// Private: where the elements of a resampled dimension come from.

#include <cstdint>
#include <vector>

#include "quanta/ops/interpolate.h"

namespace quanta::interpolation {

/// A dimension and what becomes of it.
struct ResampleAxis {
  std::int64_t input = 1;
  std::int64_t output = 1;
  double scale = 1.0;
  double roi_start = 0.0;
  double roi_end = 1.0;

  /// Whether the result has the same elements along it.
  bool is_kept() const {
    return input == output && scale == 1.0 && roi_start == 0.0 && roi_end == 1.0;
  }
};

/// `count` weighted sources for each output position.
struct WeightedSources {
  std::int64_t count = 0;
  std::vector<std::int64_t> sources;
  std::vector<float> weights;
};

std::vector<std::int64_t> nearest_sources(const ResampleAxis& axis, const ResampleOptions& options);
WeightedSources weighted_sources(const ResampleAxis& axis, const ResampleOptions& options);
/// The output positions whose source is not in x (CropAndResize).
std::vector<std::int64_t> positions_outside(const ResampleAxis& axis,
                                            const ResampleOptions& options);

}  // namespace quanta::interpolation
