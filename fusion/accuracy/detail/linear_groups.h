#pragma once

// Private: linear layers that alone take what a norm or a layer gives.

#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"

namespace quanta::accuracy {

/// The closed chains whose users are all linear layers and pass no ReLU6; of chains that meet in a
/// layer the first. Throws ArgumentError, naming `op`, where there is none.
std::vector<ChannelChain> linear_groups(const std::vector<ChannelChain>& chains,
                                        const std::vector<WeightedLayer>& layers,
                                        std::string_view op);
/// The same, and none without an error.
std::vector<ChannelChain> linear_groups(const std::vector<ChannelChain>& chains,
                                        const std::vector<WeightedLayer>& layers);

/// For each channel of the source the largest of the values of the input channels that take it; 0
/// where none does.
std::vector<float> largest_by_source(const ChannelChain& chain, const ChannelUse& use,
                                     const std::vector<float>& of_inputs);

}  // namespace quanta::accuracy
