#include "quanta/ops/cpu/resample_kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "quanta/runtime/parallel.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

std::int64_t volume(const std::array<std::int64_t, 3>& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

// body(image or plane, d, h) for every row of output pixels; threads share them.
template <typename Body>
void for_each_row(const ResampleGeometry& geometry, Body&& body) {
  const std::int64_t planes =
      geometry.channels_last ? geometry.batch : geometry.batch * geometry.channels;
  const std::int64_t row = geometry.output[2] * (geometry.channels_last ? geometry.channels : 1);
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, row));
  const std::int64_t depth = geometry.output[0];
  const std::int64_t height = geometry.output[1];
  parallel_for(planes * depth * height, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      body(item / (depth * height), item / height % depth, item % height);
    }
  });
}

template <typename T>
void gather(const ResampleGeometry& geometry, const GatherTables& tables, const T* src, T* dst) {
  const std::int64_t pixel = geometry.channels_last ? geometry.channels : 1;
  const std::int64_t in = volume(geometry.input) * pixel;
  const std::int64_t out = volume(geometry.output) * pixel;
  const std::vector<std::int64_t>& width = tables[2];
  for_each_row(geometry, [&](std::int64_t plane, std::int64_t d, std::int64_t h) {
    const std::int64_t row = tables[0][static_cast<std::size_t>(d)] * geometry.input[1] +
                             tables[1][static_cast<std::size_t>(h)];
    const T* from = src + plane * in + row * geometry.input[2] * pixel;
    T* to = dst + plane * out + (d * geometry.output[1] + h) * geometry.output[2] * pixel;
    if (geometry.channels_last) {
      for (const std::int64_t w : width) {
        std::memcpy(to, from + w * pixel, static_cast<std::size_t>(pixel) * sizeof(T));
        to += pixel;
      }
    } else {
      for (const std::int64_t w : width) *to++ = from[w];
    }
  });
}

template <typename T>
T rounded(float blend, float zero_point) {
  if constexpr (std::is_same_v<T, float>) {
    static_cast<void>(zero_point);
    return blend;
  } else {
    const float code = math::round_half_even(blend - zero_point) + zero_point;
    return static_cast<T>(math::clamp(code, static_cast<float>(std::numeric_limits<T>::min()),
                                      static_cast<float>(std::numeric_limits<T>::max())));
  }
}

template <std::size_t kSpatial, typename T>
void blend(const ResampleGeometry& geometry, const LinearTables& tables, float zero_point,
           const T* src, T* dst) {
  const std::int64_t pixel = geometry.channels_last ? geometry.channels : 1;
  const std::int64_t row_size = geometry.input[2] * pixel;
  const std::int64_t plane_size = geometry.input[1] * row_size;
  const std::int64_t in = geometry.input[0] * plane_size;
  const std::int64_t out = volume(geometry.output) * pixel;
  for_each_row(geometry, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
    const LinearTap depth = tables[0][static_cast<std::size_t>(d)];
    const LinearTap height = tables[1][static_cast<std::size_t>(h)];
    const T* base = src + image * in;
    T* to = dst + image * out + (d * geometry.output[1] + h) * geometry.output[2] * pixel;
    for (const LinearTap& width : tables[2]) {
      for (std::int64_t c = 0; c < pixel; ++c) {
        const auto along_width = [&](std::int64_t row) {
          const T* from = base + row + c;
          return width.weight_low * static_cast<float>(from[width.low * pixel]) +
                 width.weight_high * static_cast<float>(from[width.high * pixel]);
        };
        const auto along_height = [&](std::int64_t plane) {
          if constexpr (kSpatial < 2) return along_width(plane);
          return height.weight_low * along_width(plane + height.low * row_size) +
                 height.weight_high * along_width(plane + height.high * row_size);
        };
        float value = 0.0F;
        if constexpr (kSpatial < 3) {
          value = along_height(0);
        } else {
          value = depth.weight_low * along_height(depth.low * plane_size) +
                  depth.weight_high * along_height(depth.high * plane_size);
        }
        *to++ = rounded<T>(value, zero_point);
      }
    }
  });
}

template <typename T>
void blend_typed(const ResampleGeometry& geometry, const LinearTables& tables, std::size_t spatial,
                 std::int32_t zero_point, const void* src, void* dst) {
  const auto* from = static_cast<const T*>(src);
  auto* to = static_cast<T*>(dst);
  const auto zero = static_cast<float>(zero_point);
  if (spatial == 1) return blend<1>(geometry, tables, zero, from, to);
  if (spatial == 2) return blend<2>(geometry, tables, zero, from, to);
  return blend<3>(geometry, tables, zero, from, to);
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

void blend_spatial(const ResampleGeometry& geometry, const LinearTables& tables,
                   std::size_t spatial, DType dtype, std::int32_t zero_point, const void* src,
                   void* dst) {
  switch (dtype) {
    case DType::QUInt8:
      return blend_typed<std::uint8_t>(geometry, tables, spatial, zero_point, src, dst);
    case DType::QInt8:
      return blend_typed<std::int8_t>(geometry, tables, spatial, zero_point, src, dst);
    default:
      return blend_typed<float>(geometry, tables, spatial, zero_point, src, dst);
  }
}

}  // namespace quanta::cpu
