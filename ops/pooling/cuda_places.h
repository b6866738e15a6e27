#pragma once

// Private, for .cu files only: which element of an image a number in memory order is.

#include <array>
#include <cstdint>

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {

/// Depth, height and width.
struct PoolSizes {
  std::int64_t depth = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;

  SIMT_DEVICE std::int64_t volume() const { return depth * height * width; }
};

SIMT_DEVICE PoolSizes input_sizes(const cpu::PoolGeometry& geometry) {
  return {geometry.axes[0].input, geometry.axes[1].input, geometry.axes[2].input};
}
SIMT_DEVICE PoolSizes output_sizes(const cpu::PoolGeometry& geometry) {
  return {geometry.axes[0].output, geometry.axes[1].output, geometry.axes[2].output};
}

struct PoolPlace {
  std::int64_t image = 0;
  std::int64_t channel = 0;
  std::int64_t depth = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  /// Elements from one pixel of a tensor of this layout to the next.
  static SIMT_DEVICE std::int64_t pixel_step(const cpu::PoolGeometry& geometry) {
    return geometry.layout == cpu::PoolLayout::ChannelsLast ? geometry.channels : 1;
  }
  /// Where this image's and channel's plane begins in a tensor of these sizes.
  SIMT_DEVICE std::int64_t plane(const cpu::PoolGeometry& geometry, const PoolSizes& sizes) const {
    const std::int64_t volume = sizes.volume();
    const bool is_last = geometry.layout == cpu::PoolLayout::ChannelsLast;
    return image * geometry.channels * volume + (is_last ? channel : channel * volume);
  }
};

/// Of the element with this number in a dense tensor.
SIMT_DEVICE PoolPlace pool_place(const cpu::PoolGeometry& geometry, const PoolSizes& sizes,
                                 std::int64_t flat) {
  const bool is_last = geometry.layout == cpu::PoolLayout::ChannelsLast;
  const auto split = [&flat](std::int64_t size) {
    const std::int64_t rest = simt::quotient(flat, size);
    const std::int64_t position = flat - rest * size;
    flat = rest;
    return position;
  };
  PoolPlace place;
  if (is_last) place.channel = split(geometry.channels);
  place.width = split(sizes.width);
  place.height = split(sizes.height);
  place.depth = split(sizes.depth);
  if (!is_last) place.channel = split(geometry.channels);
  place.image = flat;
  return place;
}

}  // namespace quanta::cuda
