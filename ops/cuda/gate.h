#pragma once

// Private: gradients that pass where a value lies between two bounds.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// dst = x <= low or x >= high ? 0 : gradient, of neighbouring floats, as cpu::gate_gradient.
struct GateParams {
  std::int64_t count = 0;
  const void* gradient = nullptr;
  const void* x = nullptr;
  void* dst = nullptr;
  float low = 0.0F;
  float high = 0.0F;
};
QUANTA_CUDA_ENTRY(gate_floats, GateParams)

}  // namespace quanta::cuda
