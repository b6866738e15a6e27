#include "quanta/fusion/accuracy/detail/channel_scales.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {
namespace {

bool is_finite(const Tensor& x) {
  const Tensor dense = x.contiguous();
  return std::ranges::all_of(dense.span<float>(), [](float v) { return std::isfinite(v); });
}

Tensor vector_of(std::span<const float> values) {
  return Tensor::from_values(values, {static_cast<std::int64_t>(values.size())});
}

void divide_in_place(const Tensor& x, std::span<const float> divisors) {
  if (x.defined()) x.copy_(div(x, vector_of(divisors)));
}

}  // namespace

std::int64_t in_channels(const WeightedLayer& layer) {
  return layer.kind == WeightedLayer::Kind::ConvTranspose ? layer.weight->size(0)
                                                          : layer.weight->size(1) * layer.groups;
}

bool is_depthwise(const WeightedLayer& layer) {
  return layer.groups > 1 && layer.groups == in_channels(layer) &&
         layer.groups == layer.out_channels();
}

void require_finite(const WeightedLayer& layer, std::string_view op) {
  QUANTA_CHECK(is_finite(*layer.weight) && (!layer.bias->defined() || is_finite(*layer.bias)),
               "{}: model: '{}': expected finite weights and biases, got NaN or infinity", op,
               layer.path);
}

std::vector<float> largest_of_outputs(const WeightedLayer& layer) {
  const Tensor weight = layer.weight->detach().contiguous();
  std::vector<float> largest(static_cast<std::size_t>(layer.out_channels()), 0.0F);
  for_each_weight(layer, weight.data<float>(), [&](float w, std::int64_t out, std::int64_t) {
    float& most = largest[static_cast<std::size_t>(out)];
    most = std::max(most, std::abs(w));
  });
  return largest;
}

std::vector<float> largest_of_inputs(const WeightedLayer& layer) {
  const Tensor weight = layer.weight->detach().contiguous();
  std::vector<float> largest(static_cast<std::size_t>(in_channels(layer)), 0.0F);
  for_each_weight(layer, weight.data<float>(), [&](float w, std::int64_t, std::int64_t in) {
    float& most = largest[static_cast<std::size_t>(in)];
    most = std::max(most, std::abs(w));
  });
  return largest;
}

Tensor scaled_inputs(const WeightedLayer& layer, std::span<const float> factors) {
  Tensor weight = layer.weight->detach().clone(MemoryFormat::Contiguous);
  for_each_weight(
      layer, weight.mutable_data<float>(),
      [&](float& w, std::int64_t, std::int64_t in) { w *= factors[static_cast<std::size_t>(in)]; });
  return weight;
}

void divide_outputs(const WeightedLayer& layer, std::span<const float> divisors) {
  Tensor weight = layer.weight->detach().clone(MemoryFormat::Contiguous);
  for_each_weight(layer, weight.mutable_data<float>(),
                  [&](float& w, std::int64_t out, std::int64_t) {
                    w /= divisors[static_cast<std::size_t>(out)];
                  });
  *layer.weight = weight;
  if (layer.bias->defined()) *layer.bias = div(layer.bias->detach(), vector_of(divisors));
}

void add_to_bias(const WeightedLayer& layer, std::span<const double> values) {
  std::vector<float> bias(values.size(), 0.0F);
  if (layer.bias->defined()) bias = layer.bias->to_float_vector();
  for (std::size_t c = 0; c < values.size(); ++c) {
    bias[c] = static_cast<float>(static_cast<double>(bias[c]) + values[c]);
  }
  *layer.bias = vector_of(bias);
}

std::vector<float> scales_of(const ChannelUse& use, std::span<const float> scales) {
  std::vector<float> found;
  for (const std::int64_t channel : use.channels) {
    found.push_back(scales[static_cast<std::size_t>(channel)]);
  }
  return found;
}

void move_scales(const ChannelChain& chain, const std::vector<WeightedLayer>& layers,
                 std::span<const float> scales) {
  if (chain.source.layer) {
    divide_outputs(layers[*chain.source.layer], scales);
  } else {
    divide_in_place(chain.source.weight, scales);
    divide_in_place(chain.source.bias, scales);
  }
  for (const ChannelUse& use : chain.uses) {
    const WeightedLayer& layer = layers[use.layer];
    *layer.weight = scaled_inputs(layer, scales_of(use, scales));
  }
}

}  // namespace quanta::accuracy
