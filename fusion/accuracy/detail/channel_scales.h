#pragma once

// Private: weights of layers by channel, and what becomes of them when channels are scaled.

#include <cstdint>
#include <span>
#include <vector>

#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/runtime/tensor.h"

namespace quanta::accuracy {

std::int64_t in_channels(const WeightedLayer& layer);
/// Whether each input channel goes to output channels of its own and to no others' (the layer has as
/// many groups as channels).
bool is_depthwise(const WeightedLayer& layer);

/// Throws ArgumentError, naming `op` and the layer, unless weight and bias are finite.
void require_finite(const WeightedLayer& layer, std::string_view op);

/// body(element, output channel, input channel) for each element of a contiguous Float32 weight of the
/// layer's sizes.
template <typename Values, typename Body>
void for_each_weight(const WeightedLayer& layer, Values* values, const Body& body) {
  const Tensor& weight = *layer.weight;
  const bool transposed = layer.kind == WeightedLayer::Kind::ConvTranspose;
  const std::int64_t rows = weight.size(0);
  const std::int64_t columns = weight.size(1);
  const std::int64_t kernel = rows * columns == 0 ? 0 : weight.numel() / (rows * columns);
  const std::int64_t rows_of_group = rows / layer.groups;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t first = r / rows_of_group * columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t k = 0; k < kernel; ++k) {
        if (transposed) {
          body(*values++, first + c, r);
        } else {
          body(*values++, r, first + c);
        }
      }
    }
  }
}

/// max |w| of each output channel, of each input channel.
std::vector<float> largest_of_outputs(const WeightedLayer& layer);
std::vector<float> largest_of_inputs(const WeightedLayer& layer);

/// The weight with each element times that of its input channel.
Tensor scaled_inputs(const WeightedLayer& layer, std::span<const float> factors);
/// A new weight, and bias, in the layer: each output channel divided by its divisor.
void divide_outputs(const WeightedLayer& layer, std::span<const float> divisors);
/// A new bias in the layer, of one number for each output channel: what it has, or 0, and `values`.
void add_to_bias(const WeightedLayer& layer, std::span<const double> values);
/// Channel c of the source becomes 1 / scales[c] of what it was; what takes it multiplies with that.
/// The network calculates the same.
void move_scales(const ChannelChain& chain, const std::vector<WeightedLayer>& layers,
                 std::span<const float> scales);
/// For each input channel of a use what `scales` has for its channel of the source.
std::vector<float> scales_of(const ChannelUse& use, std::span<const float> scales);

}  // namespace quanta::accuracy
