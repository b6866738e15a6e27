#include <algorithm>
#include <utility>

#include "quanta/ops/cpu/gemm/conv_exact.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cpu {
namespace {

/// Phase `remainder` of dimension `dim`: the taps with a whole input position.
ExactDim make_dim(const ConvShape& shape, std::size_t dim, std::int64_t remainder) {
  const std::int64_t stride = shape.stride[dim];
  ExactDim result;
  result.first = remainder;
  result.out_step = shape.transposed ? stride : 1;
  result.in_step = shape.transposed ? 1 : stride;
  for (std::int64_t k = 0; k < shape.kernel[dim]; ++k) {
    const std::int64_t dilated = k * shape.dilation[dim];
    if (!shape.transposed) {
      result.taps.push_back({k, dilated - shape.padding[dim]});
      continue;
    }
    // out = in * stride - padding + dilated
    const std::int64_t distance = remainder + shape.padding[dim] - dilated;
    if (distance % stride == 0) result.taps.push_back({k, distance / stride});
  }
  std::sort(result.taps.begin(), result.taps.end(),
            [](const ExactDim::Tap& a, const ExactDim::Tap& b) { return a.offset < b.offset; });
  return result;
}

bool are_adjacent(const std::vector<ExactDim::Tap>& taps) {
  for (std::size_t i = 1; i < taps.size(); ++i) {
    if (taps[i].offset != taps[i - 1].offset + 1) return false;
  }
  return true;
}

struct WeightSource {
  const std::int8_t* weight;
  const std::vector<std::int64_t>& zero_points;

  std::int16_t at(std::int64_t index, std::int64_t out_channel) const {
    const std::size_t entry = zero_points.size() == 1 ? 0 : static_cast<std::size_t>(out_channel);
    return static_cast<std::int16_t>(weight[index] - zero_points[entry]);
  }
};

void pack_phase(const WeightSource& source, const ConvShape& shape, const ExactPhase& phase,
                std::int16_t* panels) {
  constexpr std::int64_t kPanel = ExactWeights::kPanel;
  const std::int64_t in_group = shape.in_channels / shape.groups;
  const std::int64_t out_group = shape.out_channels / shape.groups;
  const std::int64_t panels_of_group = ceil_div(out_group, kPanel);
  const std::int64_t kernel_size = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  for (std::int64_t out = 0; out < shape.out_channels; ++out) {
    const std::int64_t group = out / out_group;
    const std::int64_t column = out % out_group;
    std::int16_t* panel =
        panels + (group * panels_of_group + column / kPanel) * phase.pairs * kPanel * 2;
    std::int64_t k = 0;
    for (const ExactDim::Tap& d : phase.dims[0].taps) {
      for (const ExactDim::Tap& h : phase.dims[1].taps) {
        for (const ExactDim::Tap& w : phase.dims[2].taps) {
          const std::int64_t position =
              (d.kernel * shape.kernel[1] + h.kernel) * shape.kernel[2] + w.kernel;
          for (std::int64_t c = 0; c < in_group; ++c, ++k) {
            const std::int64_t filter =
                shape.transposed ? (group * in_group + c) * out_group + column : out * in_group + c;
            panel[panel_index<std::int16_t>(column % kPanel, k)] =
                source.at(filter * kernel_size + position, out);
          }
        }
      }
    }
  }
}

}  // namespace

ExactWeights pack_exact_weights(const std::int8_t* weight,
                                const std::vector<std::int64_t>& zero_points,
                                const ConvShape& shape) {
  constexpr std::int64_t kPanel = ExactWeights::kPanel;
  const std::int64_t in_group = shape.in_channels / shape.groups;
  const std::int64_t out_group = shape.out_channels / shape.groups;
  const std::int64_t panels = shape.groups * (ceil_div(out_group, kPanel));
  const auto phases_of = [&](std::size_t dim) { return shape.transposed ? shape.stride[dim] : 1; };

  ExactWeights result;
  std::size_t size = 0;
  for (std::int64_t d = 0; d < phases_of(0); ++d) {
    for (std::int64_t h = 0; h < phases_of(1); ++h) {
      for (std::int64_t w = 0; w < phases_of(2); ++w) {
        ExactPhase phase;
        phase.dims[0] = make_dim(shape, 0, d);
        phase.dims[1] = make_dim(shape, 1, h);
        phase.dims[2] = make_dim(shape, 2, w);
        phase.data_begin = size;
        phase.inner = in_group;
        for (const ExactDim& dim : phase.dims) {
          phase.inner *= static_cast<std::int64_t>(dim.taps.size());
        }
        phase.pairs = (phase.inner + 1) / 2;
        phase.adjacent = are_adjacent(phase.dims[2].taps);
        size += static_cast<std::size_t>(panels * phase.pairs * kPanel * 2);
        result.phases.push_back(std::move(phase));
      }
    }
  }
  result.data.assign(size, 0);
  const WeightSource source{weight, zero_points};
  for (const ExactPhase& phase : result.phases) {
    pack_phase(source, shape, phase, result.data.data() + phase.data_begin);
  }
  return result;
}

}  // namespace quanta::cpu
