#pragma once

// Private: quantizers that are described by amax on a CUDA device.

#include <cstdint>

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/amax_function.h"

namespace quanta::cuda {

struct AmaxMapParams {
  StridedWalk walk;  // first: x, grad and out; second: amax
  detail::AmaxFunction function;
  const float* x = nullptr;
  const float* amax = nullptr;  // null: the function needs none
  const float* grad = nullptr;  // not null: out = math::amax_gradient, whatever the function
  bool of_amax = false;         // with grad: math::gradient_of_amax instead
  float* out = nullptr;
};
QUANTA_CUDA_ENTRY(map_by_amax, AmaxMapParams)

struct FindNegativeParams {
  std::int64_t count = 0;
  const float* floats = nullptr;
  std::int32_t* magnitude = nullptr;  // bits of the largest one among negative numbers; 0 before
};
QUANTA_CUDA_ENTRY(find_negative, FindNegativeParams)

/// out = function(x, amax): dense Float32 of one memory order; `amax` broadcasts to x, or is
/// undefined.
void map_amax(const detail::AmaxFunction& function, const Tensor& x, const Tensor& amax,
              const Tensor& out);
/// out = grad where |x| <= amax, else 0.
void mask_by_amax(const Tensor& x, const Tensor& grad, const Tensor& amax, const Tensor& out);
/// out = what amax gets of each element's gradient: math::gradient_of_amax.
void gradients_of_amax(const Tensor& x, const Tensor& grad, const Tensor& amax, const Tensor& out);
/// The lowest of dense Float32 numbers if that is negative, else 0; NaN is passed over. Waits for
/// the device.
float lowest_negative(const Tensor& x);

}  // namespace quanta::cuda
