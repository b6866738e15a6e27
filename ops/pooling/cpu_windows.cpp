// Poolings one window at a time: positions of maxima, and means of powers.

#include <cstdint>

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/ops/pooling/cpu_scalar.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

// body(offset of the plane, output position, taps) for every output element in contiguous order.
template <typename Body>
void for_each_window(const PoolGeometry& geometry, Body&& body) {
  const auto& axes = geometry.axes;
  const std::int64_t in = geometry.input_volume();
  const std::int64_t out = geometry.output_volume();
  const std::int64_t grain = std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>({1, in, out}));
  parallel_for(
      geometry.batch * geometry.channels, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t plane = begin; plane < end; ++plane) {
          std::int64_t to = plane * out;
          for (std::int64_t d = 0; d < axes[0].output; ++d) {
            const PoolWindow depth = axes[0].window(d);
            for (std::int64_t h = 0; h < axes[1].output; ++h) {
              const PoolWindow height = axes[1].window(h);
              for (std::int64_t w = 0; w < axes[2].output; ++w, ++to) {
                body(plane * in, to, pool_taps(geometry, depth, height, axes[2].window(w), 1));
              }
            }
          }
        }
      });
}

template <typename T>
void max_indices(const PoolGeometry& geometry, bool column_major, const T* src, std::int64_t* dst) {
  for_each_window(geometry, [&](std::int64_t plane, std::int64_t to, const PoolTaps& taps) {
    const std::int64_t at = position_of_max(src + plane, taps);
    if (at < 0) {
      dst[to] = -1;
    } else {
      dst[to] = plane + (column_major ? column_major_offset(geometry, at) : at);
    }
  });
}

template <typename T>
void powers(const PoolGeometry& geometry, double p, const T* src, T* dst) {
  for_each_window(geometry, [&](std::int64_t plane, std::int64_t to, const PoolTaps& taps) {
    dst[to] = norm_of_taps(src + plane, taps, p);
  });
}

}  // namespace

const char* max_pool_indices(const PoolGeometry& geometry, DType dtype, bool column_major,
                             const void* src, std::int64_t* dst) {
  switch (dtype) {
    case DType::QUInt8:
    case DType::UInt8:
      max_indices(geometry, column_major, static_cast<const std::uint8_t*>(src), dst);
      break;
    case DType::QInt8:
    case DType::Int8:
      max_indices(geometry, column_major, static_cast<const std::int8_t*>(src), dst);
      break;
    case DType::QInt32:
      max_indices(geometry, column_major, static_cast<const std::int32_t*>(src), dst);
      break;
    case DType::Float64:
      max_indices(geometry, column_major, static_cast<const double*>(src), dst);
      break;
    default:
      max_indices(geometry, column_major, static_cast<const float*>(src), dst);
      break;
  }
  return "scalar";
}

const char* lp_pool(const PoolGeometry& geometry, double p, DType dtype, const void* src,
                    void* dst) {
  if (dtype == DType::Float64) {
    powers(geometry, p, static_cast<const double*>(src), static_cast<double*>(dst));
  } else {
    powers(geometry, p, static_cast<const float*>(src), static_cast<float*>(dst));
  }
  return "scalar";
}

}  // namespace quanta::cpu
