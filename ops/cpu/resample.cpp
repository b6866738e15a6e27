#include "quanta/ops/cpu/resample.h"

#include <cstring>

namespace quanta::cpu {
namespace {

std::int64_t volume(const std::array<std::int64_t, 3>& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

template <typename T>
void gather(const ResampleGeometry& geometry, const GatherTables& tables, const T* src, T* dst) {
  const std::int64_t pixel = geometry.channels_last ? geometry.channels : 1;
  const std::int64_t in = volume(geometry.input) * pixel;
  const std::int64_t out = geometry.output[2] * pixel;
  for_each_line_range(geometry, [&](std::int64_t begin, std::int64_t end) {
    const T* previous = nullptr;
    for (std::int64_t item = begin; item < end; ++item) {
      const ResampleRow row = resample_row(geometry, item);
      const T* from =
          src + row.plane * in +
          (tables[0][row.d] * geometry.input[1] + tables[1][row.h]) * geometry.input[2] * pixel;
      T* to = dst + item * out;
      if (from == previous) {
        std::memcpy(to, to - out, static_cast<std::size_t>(out) * sizeof(T));
      } else if (geometry.channels_last) {
        for (const std::int64_t w : tables[2]) {
          std::memcpy(to, from + w * pixel, static_cast<std::size_t>(pixel) * sizeof(T));
          to += pixel;
        }
      } else {
        for (const std::int64_t w : tables[2]) *to++ = from[w];
      }
      previous = from;
    }
  });
}

}  // namespace

void gather_spatial(const ResampleGeometry& geometry, const GatherTables& tables,
                    std::size_t item_size, const void* src, void* dst) {
  switch (item_size) {
    case 1:
      return gather(geometry, tables, static_cast<const std::uint8_t*>(src),
                    static_cast<std::uint8_t*>(dst));
    case 2:
      return gather(geometry, tables, static_cast<const std::uint16_t*>(src),
                    static_cast<std::uint16_t*>(dst));
    case 4:
      return gather(geometry, tables, static_cast<const std::uint32_t*>(src),
                    static_cast<std::uint32_t*>(dst));
    default:
      return gather(geometry, tables, static_cast<const std::uint64_t*>(src),
                    static_cast<std::uint64_t*>(dst));
  }
}

}  // namespace quanta::cpu
