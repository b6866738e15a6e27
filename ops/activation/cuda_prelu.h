#pragma once

// Private: prelu of floats and of codes on a CUDA device, and the gradients of floats.

#include <cstdint>

#include "quanta/ops/cuda/operand_walk.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

enum class PReluStep : std::uint8_t { Value, InputGradient, WeightGradient };

/// Float32 or Float64.
struct PReluParams {
  PReluStep step{};
  bool is_double = false;
  OperandWalk<4> walk;  // of the result, x, the weight and the result's gradient
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* gradient = nullptr;  // a value has none
  void* out = nullptr;
};
QUANTA_CUDA_ENTRY(prelu_floats, PReluParams)

/// QUInt8 or QInt8: differences of codes and zero points, multiplied and quantized.
struct PReluCodesParams {
  bool is_signed = false;
  OperandWalk<3> walk;  // of the result, x and the weight
  const void* x = nullptr;
  const void* weight = nullptr;
  void* out = nullptr;
  std::int32_t x_zero_point = 0;
  std::int32_t weight_zero_point = 0;
  std::int32_t one = 1;     // 1.0 as a difference of the weight's codes
  float multiplier = 1.0F;  // from the product's scale to the result's
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  std::int32_t high = 255;
};
QUANTA_CUDA_ENTRY(prelu_codes, PReluCodesParams)

}  // namespace quanta::cuda
