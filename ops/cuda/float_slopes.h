#pragma once

// Private: gradients of functions of one Float32 on a CUDA device (runtime/detail/slope_math.h).
// They are the CPU's to the last bit where no function of a library is in them, as in float_map.h.

#include <cstdint>

#include "quanta/ops/cuda/float_map.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// dst = the slope of the call's function at x times the gradient, of neighbouring floats. At the
/// results instead of the arguments: Sigmoid, Tanh, Reciprocal, Sqrt, Exp. Elu's first number is
/// alpha * scale * input scale.
struct SlopeParams {
  FloatCall call;
  std::int64_t count = 0;
  const float* gradient = nullptr;
  const float* x = nullptr;
  float* dst = nullptr;
};
QUANTA_CUDA_ENTRY(slope_floats, SlopeParams)

struct GateBounds {
  float low = 0.0F;
  float high = 0.0F;
  bool passes_bounds = false;  // on the bounds themselves
};

/// dst = the gradient where x lies between the bounds, else 0. A NaN lies between them, but where
/// they pass themselves, as cpu::gate_gradient and the gradient of clamp have it.
struct GateParams {
  GateBounds bounds;
  std::int64_t count = 0;
  const float* gradient = nullptr;
  const float* x = nullptr;
  float* dst = nullptr;
};
QUANTA_CUDA_ENTRY(gate_floats, GateParams)

}  // namespace quanta::cuda
