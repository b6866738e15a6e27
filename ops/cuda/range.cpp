#include "quanta/ops/cuda/range.h"

#include <algorithm>

#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {

RangeOfFloats range_of(Device device, const float* floats, std::int64_t count) {
  constexpr std::int64_t kOfBlock = 4096;  // for which another block pays
  const auto blocks = static_cast<int>(
      std::clamp<std::int64_t>((count + kOfBlock - 1) / kOfBlock, 1, FindRangeParams::kMostBlocks));
  // The last one is that of all.
  const Buffer ranges(device, static_cast<std::size_t>(blocks + 1) * sizeof(RangeOfFloats));
  auto* const of_blocks = ranges.as<RangeOfFloats>();
  find_ranges(device, {.floats = floats, .count = count, .blocks = blocks, .out = of_blocks});
  find_ranges(device, {.ranges = of_blocks, .count = blocks, .out = of_blocks + blocks});
  RangeOfFloats result;
  driver(device).copy_to_host(&result, of_blocks + blocks, sizeof(result));
  return result;
}

}  // namespace quanta::cuda
