#pragma once

// Private: what can be asked of NVIDIA's libraries where there is no GPU. In builds with CUDA only.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/ops/cuda/library.h"

namespace quanta::cuda {

// Why the library cannot be opened, or what it lacks; empty when nothing is missing.
std::string missing_cublaslt();
std::string missing_cudnn();

/// The plans, best first, that cuDNN builds for the convolution on a device of these properties
/// (cuDNN's JSON), with tensors that are aligned to so many bytes. Throws BackendError: no cuDNN,
/// properties that it does not take, or no plan.
std::vector<std::string> cudnn_plans(const FloatConvolution& convolution,
                                     std::string_view device_properties,
                                     std::int64_t alignment = 16);

}  // namespace quanta::cuda
