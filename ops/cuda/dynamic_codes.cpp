#include "quanta/ops/cuda/dynamic_codes.h"

namespace quanta::cuda {

DynamicCodes::DynamicCodes(Device device, const float* floats, std::int64_t count,
                           bool reduce_range)
    : codes_(device, static_cast<std::size_t>(count)), numbers_(device, sizeof(DynamicNumbers)) {
  const Buffer range(device, sizeof(RangeOfFloats));
  find_range(device, floats, count, RangeOver::All, range.as<RangeOfFloats>());
  quantize_dynamic(device, {.count = count,
                            .floats = floats,
                            .range = range.as<RangeOfFloats>(),
                            .reduce_range = reduce_range,
                            .codes = codes_.as<std::uint8_t>(),
                            .numbers = numbers_.as<DynamicNumbers>()});
}

}  // namespace quanta::cuda
