#pragma once

// Private: pairs of layers of which the second alone takes what the first gives.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/layer_chains.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"

namespace quanta::accuracy {

struct LayerPair {
  std::size_t first = 0, second = 0;  ///< positions among the layers
  const ChannelChain* chain = nullptr;
  const ChannelUse& use() const { return chain->uses[0]; }
};

/// In the order of the chains. They refer to `chains`, which has to outlive them.
std::vector<LayerPair> layer_pairs(const std::vector<ChannelChain>& chains);
/// Throws ArgumentError, naming `op`: no pair was found, and what takes the results of some layers.
[[noreturn]] void throw_no_pairs(std::string_view op, const std::vector<ChannelChain>& chains);

}  // namespace quanta::accuracy
