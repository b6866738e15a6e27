#include "quanta/ops/pooling/cuda_kernels.h"

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/ops/pooling/cpu_scalar.h"
#include "quanta/ops/pooling/cuda_places.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE std::int64_t output_count(const PoolParams& p) {
  return p.geometry.batch * p.geometry.channels * p.geometry.axes[0].output *
         p.geometry.axes[1].output * p.geometry.axes[2].output;
}

// Elements of T; float stands for floats of any width.
template <typename T>
SIMT_DEVICE auto source_of(const PoolParams& p, std::int64_t first) {
  if constexpr (std::is_same_v<T, float>) {
    return FloatSource{p.dtype, p.x, first};
  } else {
    return static_cast<const T*>(p.x) + first;
  }
}
template <typename T>
SIMT_DEVICE void put(const PoolParams& p, std::int64_t i, T value) {
  if constexpr (std::is_same_v<T, float>) {
    put_float(p.dtype, p.y, i, value);
  } else {
    static_cast<T*>(p.y)[i] = value;
  }
}

// One element of the result, in memory order: calculate(offset of the plane's first element, taps)
// gives it.
template <typename Calculate>
SIMT_DEVICE void pool_one(const PoolParams& p, std::int64_t i, const Calculate& calculate) {
  const cpu::PoolGeometry& geometry = p.geometry;
  const auto& axes = geometry.axes;
  const PoolPlace place = pool_place(geometry, output_sizes(geometry), i);
  const std::int64_t plane = place.plane(geometry, input_sizes(geometry));
  const cpu::PoolTaps taps =
      cpu::pool_taps(geometry, axes[0].window(place.depth), axes[1].window(place.height),
                     axes[2].window(place.width), PoolPlace::pixel_step(geometry));
  put(p, i, calculate(plane, taps));
}

// visit(T{}) with the type of what is compared.
template <typename Visit>
SIMT_DEVICE void visit_comparable(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::Float32:
    case DType::Float16:
    case DType::BFloat16:
      return visit(float{});
    case DType::QUInt8:
      return visit(std::uint8_t{});
    case DType::QInt8:
      return visit(std::int8_t{});
    default:
      return visit(std::int32_t{});
  }
}

struct PoolLargest {
  static constexpr const char* kName = "pool_largest";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PoolParams;

  template <typename T>
  static SIMT_DEVICE void one(const Params& p, std::int64_t i) {
    pool_one(p, i, [&](std::int64_t plane, const cpu::PoolTaps& taps) {
      return cpu::max_of_taps(source_of<T>(p, plane), taps);
    });
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= output_count(p)) return;
    visit_comparable(p.dtype, [&](auto zero) { one<decltype(zero)>(p, i); });
  }
};

struct PoolAverage {
  static constexpr const char* kName = "pool_average";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PoolParams;

  template <typename T>
  static SIMT_DEVICE void one(const Params& p, std::int64_t i) {
    pool_one(p, i, [&](std::int64_t plane, const cpu::PoolTaps& taps) {
      return cpu::average_of_taps(source_of<T>(p, plane), taps, p.rule);
    });
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= output_count(p)) return;
    switch (p.dtype) {
      case DType::Float32:
      case DType::Float16:
      case DType::BFloat16:
        return one<float>(p, i);
      case DType::QUInt8:
        return one<std::uint8_t>(p, i);
      default:
        return one<std::int8_t>(p, i);
    }
  }
};

// Offsets of the largest in the whole input.
struct FindLargest {
  static constexpr const char* kName = "find_largest";
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 2;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FindLargestParams;

  template <typename T>
  static SIMT_DEVICE void one(const Params& p, std::int64_t i) {
    pool_one(p.pool, i, [&](std::int64_t plane, const cpu::PoolTaps& taps) {
      const std::int64_t at = cpu::position_of_max(source_of<T>(p.pool, plane), taps);
      if (at < 0) return at;
      return plane + (p.column_major ? cpu::column_major_offset(p.pool.geometry, at) : at);
    });
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= output_count(p.pool)) return;
    visit_comparable(p.pool.dtype, [&](auto zero) { one<decltype(zero)>(p, i); });
  }
};

template <typename T>
struct PoolNorm {
  static constexpr const char* kName = "pool_norm";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PoolNormParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= output_count(p.pool)) return;
    pool_one(p.pool, i, [&](std::int64_t plane, const cpu::PoolTaps& taps) {
      return cpu::norm_of_taps(static_cast<const T*>(p.pool.x) + plane, taps, p.p);
    });
  }
};

std::int64_t outputs(const PoolParams& params) {
  return params.geometry.batch * params.geometry.channels * params.geometry.output_volume();
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void pool_largest(Device device, const PoolParams& params) {
  simt::launch<PoolLargest>(device, simt::grid_for(outputs(params)), params);
}
void pool_average(Device device, const PoolParams& params) {
  simt::launch<PoolAverage>(device, simt::grid_for(outputs(params)), params);
}
void find_largest(Device device, const FindLargestParams& params) {
  simt::launch<FindLargest>(device, simt::grid_for(outputs(params.pool)), params);
}
void pool_norm(Device device, const PoolNormParams& params) {
  const simt::Grid grid = simt::grid_for(outputs(params.pool));
  params.pool.dtype == DType::Float64 ? simt::launch<PoolNorm<double>>(device, grid, params)
                                      : simt::launch<PoolNorm<float>>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
