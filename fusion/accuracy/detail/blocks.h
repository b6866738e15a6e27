#pragma once

// Private: the blocks of a network whose results are fitted as one.

#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/gridded_layers.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/module.h"

namespace quanta::accuracy {

/// A module that has one input, and the layers in it.
struct Block {
  std::string path;
  nn::Module* module = nullptr;     ///< of the model
  nn::Module* reference = nullptr;  ///< the one of that path
  std::vector<const GriddedLayer*> layers;
};

/// Every layer is in one block. `paths`: of modules that are blocks; none: the lowest modules below
/// the root, lists (Sequential, ModuleList) aside, that hold two or more of the layers. Of those a
/// block is only what gives the same once more on the first input of its calls in `run`; layers
/// elsewhere are blocks of their own. In the order in which `run` calls them. Throws ArgumentError,
/// naming `op`: paths that are none, hold no layer, lie in one another, or whose modules depend on
/// more than one input; data that does not reach a layer.
std::vector<Block> find_blocks(std::string_view op, nn::Module& model, nn::Module& reference,
                               const std::vector<GriddedLayer>& layers,
                               const std::vector<std::string>& paths, const Calibrate& run);

}  // namespace quanta::accuracy
