#pragma once

// Private: the activation behind a layer, fused to it or not.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/runtime/operation.h"

namespace quanta::accuracy {

/// By the layers' paths, the operation on each element (ReLU, ReLU6, GELU ...) that is the only one
/// to take a layer's result, in one recorded run of `example`; layers without one are left out, and
/// so are all layers of a network whose run cannot be recorded. Throws what the model throws.
std::map<std::string, std::shared_ptr<const Operation>> following_activations(
    nn::Module& model, const std::vector<WeightedLayer>& layers, std::span<const Tensor> example);

}  // namespace quanta::accuracy
