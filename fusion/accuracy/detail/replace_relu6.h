#pragma once

// Private: ReLU6 modules that become ReLUs.

#include <set>
#include <span>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/runtime/tensor.h"

namespace quanta::accuracy {

/// The modules nn::ReLU6 at these paths become nn::ReLU, and what is found in a run of `example` to
/// be a layer with one of them alone behind it is fused; in a graph::Model the nodes change with them
/// (prepare_jit fuses). Gives whether there were any. Pointers to modules are invalid afterwards.
bool replace_relu6(nn::Module& model, const std::set<std::string>& paths,
                   std::span<const Tensor> example);

}  // namespace quanta::accuracy
