#include "quanta/ops/cuda/range.h"

#include <algorithm>

#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {

void find_range(Device device, const float* floats, std::int64_t count, RangeOver over,
                RangeOfFloats* range) {
  constexpr std::int64_t kOfBlock = 4096;  // for which another block pays
  const auto blocks = static_cast<int>(
      std::clamp<std::int64_t>((count + kOfBlock - 1) / kOfBlock, 1, FindRangeParams::kMostBlocks));
  const Buffer ranges(device, static_cast<std::size_t>(blocks) * sizeof(RangeOfFloats));
  auto* const of_blocks = ranges.as<RangeOfFloats>();
  find_ranges(device,
              {.floats = floats, .count = count, .over = over, .blocks = blocks, .out = of_blocks});
  find_ranges(device, {.ranges = of_blocks, .count = blocks, .out = range});
}

RangeOfFloats range_of(Device device, const float* floats, std::int64_t count, RangeOver over) {
  const Buffer range(device, sizeof(RangeOfFloats));
  find_range(device, floats, count, over, range.as<RangeOfFloats>());
  RangeOfFloats result;
  driver(device).copy_to_host(&result, range.as<RangeOfFloats>(), sizeof(result));
  return result;
}

}  // namespace quanta::cuda
