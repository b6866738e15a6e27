#pragma once

// Private: the bin of a value, for the CPU's loops and CUDA's kernels.

#include <cstdint>

#include "quanta/runtime/host_device.h"

namespace quanta::detail {

/// `bins` equal bins of [low, high].
struct BinScale {
  float low = 0.0F;
  float high = 1.0F;
  float width = 1.0F;  ///< high - low
  std::int64_t bins = 1;
  /// The product of width and bins leaves float32, where torch's bins are undefined: calculated in
  /// double.
  bool is_wide = false;
};

/// The bin of a place in [0, bins], or the nearest one; the first for NaN.
template <typename T>
QUANTA_HOST_DEVICE inline std::int64_t bin_at(T place, std::int64_t bins) {
  if (!(place > T{0})) return 0;
  return place < static_cast<T>(bins) ? static_cast<std::int64_t>(place) : bins - 1;
}

/// Of a value in [low, high]: trunc((value - low) * bins / width), in float32 from left to right.
/// Other values are in the first or the last bin, NaN in the first.
QUANTA_HOST_DEVICE inline std::int64_t bin_of(float value, const BinScale& scale) {
  if (scale.width == 0.0F) return 0;
  if (scale.is_wide) {
    const auto low = static_cast<double>(scale.low);
    const double factor = static_cast<double>(scale.bins) / (static_cast<double>(scale.high) - low);
    return bin_at((static_cast<double>(value) - low) * factor, scale.bins);
  }
  return bin_at((value - scale.low) * static_cast<float>(scale.bins) / scale.width, scale.bins);
}

/// Of a value among rising edges, one more than bins: as numpy.histogram, the last edge is in the
/// last bin. -1: outside, or NaN.
QUANTA_HOST_DEVICE inline std::int64_t bin_between(float value, const float* edges,
                                                   std::int64_t bins) {
  if (!(value >= edges[0] && value <= edges[bins])) return -1;
  // The number of edges that are not above the value.
  std::int64_t low = 0;
  std::int64_t high = bins + 1;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (value < edges[middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low - 1 < bins ? low - 1 : bins - 1;
}

}  // namespace quanta::detail
