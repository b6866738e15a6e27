#pragma once

// Private: input positions copied along the spatial dimensions, and the walk over output lines that
// copies and blends share.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/runtime/parallel.h"

namespace quanta::cpu {

/// Dense input and output of up to three spatial dimensions (unused leading ones are 1).
struct ResampleGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::array<std::int64_t, 3> input{1, 1, 1};
  std::array<std::int64_t, 3> output{1, 1, 1};
  bool channels_last = false;
};

/// The input position that each output position copies, for each dimension.
using GatherTables = std::array<std::vector<std::int64_t>, 3>;
void gather_spatial(const ResampleGeometry& geometry, const GatherTables& tables,
                    std::size_t item_size, const void* src, void* dst);

/// An output line and where it comes from.
struct ResampleRow {
  std::int64_t plane = 0;  ///< of the image, or of its channel
  std::size_t d = 0;
  std::size_t h = 0;
};

/// Calls body(first, last) for ranges of output lines; threads share them.
template <typename Body>
void for_each_line_range(const ResampleGeometry& geometry, Body&& body) {
  const std::int64_t planes =
      geometry.channels_last ? geometry.batch : geometry.batch * geometry.channels;
  const std::int64_t row = geometry.output[2] * (geometry.channels_last ? geometry.channels : 1);
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, row));
  parallel_for(planes * geometry.output[0] * geometry.output[1], grain, body);
}

inline ResampleRow resample_row(const ResampleGeometry& geometry, std::int64_t item) {
  const std::int64_t depth = geometry.output[0];
  const std::int64_t height = geometry.output[1];
  return {item / (depth * height), static_cast<std::size_t>(item / height % depth),
          static_cast<std::size_t>(item % height)};
}

}  // namespace quanta::cpu
