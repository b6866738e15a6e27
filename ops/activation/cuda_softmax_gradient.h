#pragma once

// Private: gradients of softmax and log_softmax on a CUDA device, Float32. Sums are added in the
// CPU's order, so that results are the CPU's, but for log_softmax's exp, which is CUDA's own.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Lines of [outer, length, inner] along the middle.
struct SoftmaxGradientParams {
  bool is_log = false;
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;
  const float* gradient = nullptr;
  const float* y = nullptr;  // the result
  float* out = nullptr;
};
QUANTA_CUDA_ENTRY(softmax_line_gradients, SoftmaxGradientParams)

}  // namespace quanta::cuda
