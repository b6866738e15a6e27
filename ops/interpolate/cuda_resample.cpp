#include "quanta/ops/interpolate/cuda_resample.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "quanta/ops/cuda/gather.h"
#include "quanta/ops/interpolate/cuda_blend.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

using interpolation::Axes;
using interpolation::Part;
using interpolation::ResampleAxis;

template <typename T>
Buffer on_device(Device device, const std::vector<T>& values) {
  return {device, values.data(), values.size() * sizeof(T)};
}

std::int64_t volume(const std::array<std::int64_t, 3>& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

// Runs step(part, is_first, is_last, from, to) over memory that goes from part to part.
template <typename Step>
void run_parts(const std::vector<Part>& parts, std::size_t item_bytes, const Tensor& x,
               const Tensor& out, const Step& step) {
  std::array<Buffer, 2> memory;
  const void* from = x.device_ptr();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool is_last = i + 1 == parts.size();
    void* to = out.device_ptr();
    if (!is_last) {
      const cpu::ResampleGeometry& g = parts[i].geometry;
      const auto items = static_cast<std::size_t>(g.batch * g.channels * volume(g.output));
      memory[i % 2] = Buffer(x.device(), items * item_bytes);
      to = memory[i % 2].as<std::byte>();
    }
    step(parts[i], i == 0, is_last, from, to);
    from = to;
  }
}

// All dimensions at once.
void copy_nearest(const Tensor& x, const Axes& axes, const ResampleOptions& options,
                  const Tensor& out) {
  const bool is_last = x.suggested_format() == MemoryFormat::ChannelsLast;
  std::array<GatherAxis, GatherParams::kMostAxes> gathered;
  std::vector<Buffer> tables;
  for (std::size_t d = 0; d < axes.size(); ++d) {
    const std::size_t slot = !is_last || d == 0 ? d : d == 1 ? axes.size() - 1 : d - 1;
    gathered[d] = kept_axis(x.sizes()[d], x.strides()[d]);
    if (axes[slot].is_kept()) continue;
    gathered[d].source.output = axes[slot].output;
    tables.push_back(on_device(x.device(), interpolation::nearest_sources(axes[slot], options)));
    gathered[d].table = tables.back().as<std::int64_t>();
  }
  gather(x, std::span(gathered).first(axes.size()), out);
}

void blend_part(const Part& part, const Axes& axes, const ResampleOptions& options, const Tensor& x,
                const void* from, void* to) {
  std::array<BlendAxis, 3> blended;
  std::array<Buffer, 3> tables;
  for (std::size_t i = 0; i < part.count; ++i) {
    const std::size_t slot = 3 - part.count + i;
    tables[slot] = on_device(x.device(), interpolation::taps_of(axes[part.first + i], options));
    blended[slot].table = tables[slot].as<math::LinearTap>();
  }
  const auto zero_point =
      x.is_quantized() ? static_cast<std::int32_t>(x.impl()->quantizer.zero_point) : 0;
  blend(x.device(), part.geometry, blended, part.count, x.dtype(), zero_point, false, from, to);
}

void weigh_all(const Tensor& x, const Axes& axes, const ResampleOptions& options,
               const Tensor& out) {
  const DType working = interpolation::working_dtype(x.dtype());
  run_parts(interpolation::parts_of(axes, 1), item_size(working), x, out,
            [&](const Part& part, bool is_first, bool is_last, const void* from, void* to) {
              const ResampleAxis& axis = axes[part.first];
              const interpolation::WeightedSources taps =
                  interpolation::weighted_sources(axis, options);
              const Buffer sources = on_device(x.device(), taps.sources);
              const Buffer weights = on_device(x.device(), taps.weights);
              WeighParams params;
              params.inner = part.geometry.channels;
              params.count = part.geometry.batch * axis.output * params.inner;
              params.input = axis.input;
              params.output = axis.output;
              params.taps = taps.count;
              params.sources = sources.as<std::int64_t>();
              params.weights = weights.as<float>();
              params.from_dtype = is_first ? x.dtype() : working;
              params.to_dtype = is_last ? x.dtype() : working;
              params.in_double = working == DType::Float64;
              params.fraction = interpolation::rest_of(x.dtype(), options);
              params.x = from;
              params.y = to;
              weigh_lines(x.device(), params);
            });
}

}  // namespace

std::string_view resample(const Tensor& x, const interpolation::Axes& axes,
                          const ResampleOptions& options, const Tensor& out) {
  if (interpolation::parts_of(axes, 1).empty()) {
    copy_same_dtype(out, x);
    return "copy_items";
  }
  if (options.mode == ResampleMode::Nearest) {
    copy_nearest(x, axes, options, out);
    return "gather_items";
  }
  const std::vector<Part> parts = interpolation::blended_parts(x.dtype(), axes, options);
  if (parts.empty()) {
    weigh_all(x, axes, options, out);
    return "weigh_lines";
  }
  run_parts(parts, item_size(x.dtype()), x, out,
            [&](const Part& part, bool, bool, const void* from, void* to) {
              blend_part(part, axes, options, x, from, to);
            });
  return "blend_packs";
}

}  // namespace quanta::cuda
