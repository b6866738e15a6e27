#pragma once

// Private: clip and its gradients on a CUDA device.

#include <cstdint>

#include "quanta/ops/cuda/operand_walk.h"
#include "quanta/ops/tensor_quant/clip_functions.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Float32 or Float64.
struct ClipParams {
  clipping::ClipStep step{};
  bool is_double = false;
  OperandWalk<5> walk;  // of the result, x, both bounds and the result's gradient
  const void* x = nullptr;
  const void* low = nullptr;
  const void* high = nullptr;
  const void* gradient = nullptr;  // a value has none
  void* out = nullptr;
};
QUANTA_CUDA_ENTRY(clip_floats, ClipParams)

}  // namespace quanta::cuda
