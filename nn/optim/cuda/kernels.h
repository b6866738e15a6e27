#pragma once

// Private: steps of optimizers on a CUDA device, with the CPU's arithmetic. All tensors of a call
// are dense, Float32 and in one memory order.

#include <cstdint>

#include "quanta/nn/optim/detail/update_math.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct SGDParams {
  optim::SGDStep<float> step;
  std::int64_t count = 0;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* buffer = nullptr;  // null: no momentum
};
QUANTA_CUDA_ENTRY(sgd_step, SGDParams)

struct AdamParams {
  optim::AdamStep<float> step;
  std::int64_t count = 0;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* mean = nullptr;
  float* square = nullptr;
  float* largest = nullptr;  // null: no amsgrad
};
QUANTA_CUDA_ENTRY(adam_step, AdamParams)

/// total = the sum of the elements' sizes to the power of norm_type, or the largest size where that
/// is infinite. In two steps, by way of a double for each block of detail::kBlockTerms.
struct GradientSizeParams {
  std::int64_t count = 0;
  double norm_type = 2.0;
  bool is_largest = false;
  const float* gradient = nullptr;
  double* parts = nullptr;
  double* total = nullptr;
};
QUANTA_CUDA_ENTRY(sum_gradient_sizes, GradientSizeParams)
QUANTA_CUDA_ENTRY(join_gradient_sizes, GradientSizeParams)

}  // namespace quanta::cuda
