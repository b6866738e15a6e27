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

/// What an element of the result is made from.
struct PoolWindows {
  std::int64_t plane;  // offset of the plane's first element
  cpu::PoolTaps taps;
};

/// Of element i, in memory order.
SIMT_DEVICE PoolWindows pool_windows(const PoolParams& p, std::int64_t i) {
  const cpu::PoolGeometry& geometry = p.geometry;
  const auto& axes = geometry.axes;
  const PoolPlace place = pool_place(geometry, output_sizes(geometry), i);
  return {place.plane(geometry, input_sizes(geometry)),
          cpu::pool_taps(geometry, axes[0].window(place.depth), axes[1].window(place.height),
                         axes[2].window(place.width), PoolPlace::pixel_step(geometry))};
}

// One element of the result: calculate(offset of the plane's first element, taps) gives it.
template <typename Calculate>
SIMT_DEVICE void pool_one(const PoolParams& p, std::int64_t i, const Calculate& calculate) {
  const PoolWindows windows = pool_windows(p, i);
  put(p, i, calculate(windows.plane, windows.taps));
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

// Codes of 8 bits whose channels lie on words: a thread has four of them.
struct PoolLargestFour {
  static constexpr const char* kName = "pool_largest_four";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PoolParams;

  static bool takes(const Params& p) {
    const std::uintptr_t bits =
        reinterpret_cast<std::uintptr_t>(p.x) | reinterpret_cast<std::uintptr_t>(p.y);
    return (p.dtype == DType::QUInt8 || p.dtype == DType::QInt8) &&
           p.geometry.layout == cpu::PoolLayout::ChannelsLast && p.geometry.channels % 4 == 0 &&
           bits % 4 == 0;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread() * 4;
    if (i >= output_count(p)) return;
    const PoolWindows windows = pool_windows(p, i);
    const cpu::PoolTaps& taps = windows.taps;
    // Signed codes with their highest bit turned have the order of unsigned ones.
    const std::uint32_t turn = p.dtype == DType::QInt8 ? 0x80808080U : 0;
    const std::uint8_t* const plane = static_cast<const std::uint8_t*>(p.x) + windows.plane;
    std::uint32_t best = 0;
    for (std::int64_t d = 0; d < taps.depth_count; ++d) {
      for (std::int64_t h = 0; h < taps.height_count; ++h) {
        const std::uint8_t* from = plane + taps.first + d * taps.depth_step + h * taps.height_step;
        for (std::int64_t w = 0; w < taps.width_count; ++w, from += taps.width_step) {
          best = simt::max_bytes(best, simt::load<std::uint32_t>(from) ^ turn);
        }
      }
    }
    simt::store(static_cast<std::uint8_t*>(p.y) + i, best ^ turn);
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
  if (PoolLargestFour::takes(params)) {
    return simt::launch<PoolLargestFour>(device, simt::grid_for(outputs(params) / 4), params);
  }
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
