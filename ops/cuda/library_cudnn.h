#pragma once

// Private: what cuDNN would do for a device that is not there. In builds with CUDA only.

#include <string>
#include <string_view>
#include <vector>

#include "quanta/ops/cuda/library.h"

namespace quanta::cuda {

/// The plans, best first, that cuDNN builds for the convolution on a device of these properties
/// (cuDNN's JSON). Throws BackendError: no cuDNN, properties that it does not take, or no plan.
std::vector<std::string> cudnn_plans(const FloatConvolution& convolution,
                                     std::string_view device_properties);

/// Whether cuDNN can be opened; else why not.
std::string missing_cudnn();

}  // namespace quanta::cuda
