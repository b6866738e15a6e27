#include "quanta/ops/pooling/cuda_gradient.h"

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/ops/pooling/cpu_scalar.h"
#include "quanta/ops/pooling/cuda_places.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE std::int64_t input_count(const PoolGradientParams& p) {
  return p.geometry.batch * p.geometry.channels * input_sizes(p.geometry).volume();
}

// Calls body(offset of the output, its windows) in order for the outputs that may see this input.
template <typename Body>
SIMT_DEVICE void for_each_output(const cpu::PoolGeometry& geometry, const PoolPlace& input,
                                 Body&& body) {
  const auto& axes = geometry.axes;
  const PoolSizes sizes = output_sizes(geometry);
  const std::int64_t step = PoolPlace::pixel_step(geometry);
  const std::int64_t plane = input.plane(geometry, sizes);
  const cpu::PoolOutputs depth = axes[0].outputs(input.depth);
  const cpu::PoolOutputs height = axes[1].outputs(input.height);
  const cpu::PoolOutputs width = axes[2].outputs(input.width);
  for (std::int64_t d = depth.first; d <= depth.last; ++d) {
    const cpu::PoolWindow in_depth = axes[0].window(d);
    if (!axes[0].sees(in_depth, input.depth)) continue;
    for (std::int64_t h = height.first; h <= height.last; ++h) {
      const cpu::PoolWindow in_height = axes[1].window(h);
      if (!axes[1].sees(in_height, input.height)) continue;
      const std::int64_t row = plane + (d * sizes.height + h) * sizes.width * step;
      for (std::int64_t w = width.first; w <= width.last; ++w) {
        const cpu::PoolWindow in_width = axes[2].window(w);
        if (!axes[2].sees(in_width, input.width)) continue;
        body(row + w * step, in_depth, in_height, in_width);
      }
    }
  }
}

// share(output, its windows) is what an output sends back to the input element i.
template <typename Share>
SIMT_DEVICE void add_shares(const PoolGradientParams& p, std::int64_t i, const Share& share) {
  const PoolPlace place = pool_place(p.geometry, input_sizes(p.geometry), i);
  float sum = 0.0F;
  for_each_output(p.geometry, place, [&](std::int64_t output, const auto&... windows) {
    sum += share(output, windows...);
  });
  put_float(p.dtype, p.result, i, sum);
}

struct SpreadToLargest {
  static constexpr const char* kName = "spread_to_largest";
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 2;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PoolGradientParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= input_count(p)) return;
    const FloatSource gradient{p.dtype, p.gradient};
    add_shares(p, i, [&](std::int64_t output, const auto&...) {
      return p.where[output] == i ? gradient[output] : 0.0F;
    });
  }
};

struct SpreadToAll {
  static constexpr const char* kName = "spread_to_all";
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 2;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PoolGradientParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= input_count(p)) return;
    const FloatSource gradient{p.dtype, p.gradient};
    add_shares(p, i, [&](std::int64_t output, const auto&... windows) {
      const cpu::PoolTaps taps = cpu::pool_taps(p.geometry, windows..., 1);
      return gradient[output] * cpu::gradient_factor(p.rule, taps);
    });
  }
};

std::int64_t inputs(const PoolGradientParams& params) {
  return params.geometry.batch * params.geometry.channels * params.geometry.input_volume();
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void spread_to_largest(Device device, const PoolGradientParams& params) {
  simt::launch<SpreadToLargest>(device, simt::grid_for(inputs(params)), params);
}
void spread_to_all(Device device, const PoolGradientParams& params) {
  simt::launch<SpreadToAll>(device, simt::grid_for(inputs(params)), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
