#pragma once

// Private: the smallest and the largest element of floats on a CUDA device.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Which floats count; of Finite ones NaN does, and FiniteNumbers leave it out as well.
enum class RangeOver : std::uint8_t { All, Finite, FiniteNumbers };

/// Smallest and largest of some floats; NaN, NaN when there is a NaN; infinity, -infinity of none.
struct RangeOfFloats {
  float min = 0.0F;
  float max = 0.0F;
};

struct FindRangeParams {
  static constexpr int kMostBlocks = 512;
  const RangeOfFloats* ranges = nullptr;  // null: `floats` are looked at
  const float* floats = nullptr;
  std::int64_t count = 0;  // > 0
  RangeOver over = RangeOver::All;
  int blocks = 1;
  RangeOfFloats* out = nullptr;  // of each block
};
QUANTA_CUDA_ENTRY(find_ranges, FindRangeParams)

/// That of `count` > 0 floats, to a place on the device.
void find_range(Device device, const float* floats, std::int64_t count, RangeOver over,
                RangeOfFloats* range);
/// The same on the host; waits for the device.
RangeOfFloats range_of(Device device, const float* floats, std::int64_t count,
                       RangeOver over = RangeOver::All);

}  // namespace quanta::cuda
