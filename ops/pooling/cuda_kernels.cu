#include "quanta/ops/pooling/cuda_kernels.h"

#include "quanta/ops/pooling/cpu_scalar.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE std::int64_t output_count(const PoolParams& p) {
  return p.geometry.batch * p.geometry.channels * p.geometry.axes[0].output *
         p.geometry.axes[1].output * p.geometry.axes[2].output;
}

// One element of the result, in memory order: calculate(taps from src) gives it.
template <typename T, typename Calculate>
SIMT_DEVICE void pool_one(const PoolParams& p, std::int64_t i, const Calculate& calculate) {
  const cpu::PoolGeometry& geometry = p.geometry;
  const auto& axes = geometry.axes;
  const bool is_last = geometry.layout == cpu::PoolLayout::ChannelsLast;
  std::int64_t rest = i;
  std::int64_t channel = 0;
  if (is_last) {
    channel = rest % geometry.channels;
    rest /= geometry.channels;
  }
  const std::int64_t w = rest % axes[2].output;
  rest /= axes[2].output;
  const std::int64_t h = rest % axes[1].output;
  rest /= axes[1].output;
  const std::int64_t d = rest % axes[0].output;
  rest /= axes[0].output;
  if (!is_last) {
    channel = rest % geometry.channels;
    rest /= geometry.channels;
  }
  const std::int64_t volume = axes[0].input * axes[1].input * axes[2].input;
  const std::int64_t image = rest * geometry.channels * volume;
  const T* src = static_cast<const T*>(p.x) + image + (is_last ? channel : channel * volume);
  const cpu::PoolTaps taps = cpu::pool_taps(geometry, axes[0].window(d), axes[1].window(h),
                                            axes[2].window(w), is_last ? geometry.channels : 1);
  static_cast<T*>(p.y)[i] = calculate(src, taps);
}

struct PoolLargest {
  static constexpr const char* kName = "pool_largest";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PoolParams;

  template <typename T>
  static SIMT_DEVICE void one(const Params& p, std::int64_t i) {
    pool_one<T>(
        p, i, [](const T* src, const cpu::PoolTaps& taps) { return cpu::max_of_taps(src, taps); });
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= output_count(p)) return;
    switch (p.dtype) {
      case DType::Float32:
        return one<float>(p, i);
      case DType::QUInt8:
        return one<std::uint8_t>(p, i);
      case DType::QInt8:
        return one<std::int8_t>(p, i);
      default:
        return one<std::int32_t>(p, i);
    }
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
    pool_one<T>(p, i, [&](const T* src, const cpu::PoolTaps& taps) {
      return cpu::average_of_taps(src, taps, p.rule);
    });
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= output_count(p)) return;
    return p.dtype == DType::QUInt8 ? one<std::uint8_t>(p, i) : one<std::int8_t>(p, i);
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

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
