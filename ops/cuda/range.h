#pragma once

// Private: the smallest and the largest element of floats on a CUDA device.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Smallest and largest of some floats; NaN, NaN when there is a NaN.
struct RangeOfFloats {
  float min = 0.0F;
  float max = 0.0F;
};

struct FindRangeParams {
  static constexpr int kMostBlocks = 512;
  const RangeOfFloats* ranges = nullptr;  // null: `floats` are looked at
  const float* floats = nullptr;
  std::int64_t count = 0;  // > 0
  int blocks = 1;
  RangeOfFloats* out = nullptr;  // of each block
};
QUANTA_CUDA_ENTRY(find_ranges, FindRangeParams)

/// That of `count` > 0 floats, to a place on the device.
void find_range(Device device, const float* floats, std::int64_t count, RangeOfFloats* range);
/// The same on the host; waits for the device.
RangeOfFloats range_of(Device device, const float* floats, std::int64_t count);

}  // namespace quanta::cuda
