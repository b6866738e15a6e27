#pragma once

// Private: where the elements of a resampled dimension come from.

#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/resample.h"
#include "quanta/ops/interpolate.h"
#include "quanta/runtime/detail/resample_math.h"

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

using Axes = std::vector<ResampleAxis>;

/// Dense memory as [before, middle..., after], where at most three dimensions change.
struct Part {
  std::size_t first = 0;  ///< of the axes
  std::size_t count = 0;
  cpu::ResampleGeometry geometry;
};

/// The parts to do one after the other: what lies between the first and the last dimension that
/// changes, `most` dimensions at a time from the front. Axes are in the order of memory.
std::vector<Part> parts_of(const Axes& axes, std::size_t most);

/// The parts of a linear mode that are blended two by two; empty: it is calculated by weights.
std::vector<Part> blended_parts(DType dtype, const Axes& axes, const ResampleOptions& options);
std::vector<math::LinearTap> taps_of(const ResampleAxis& axis, const ResampleOptions& options);

/// What weights are calculated in: the integers that floats of 32 bits do not hold take Float64.
DType working_dtype(DType dtype);
/// What becomes of the fraction of integers.
math::Fraction rest_of(DType dtype, const ResampleOptions& options);

}  // namespace quanta::interpolation
