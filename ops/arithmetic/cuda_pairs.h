#pragma once

// Private: functions of two codes through the floats that they stand for, on a CUDA device.

#include <cstdint>

#include "quanta/ops/cuda/operand_walk.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

enum class CodePairFunction : std::uint8_t { Divide, Minimum, Maximum };

/// QUInt8 or QInt8.
struct CodePairParams {
  CodePairFunction function{};
  bool is_signed = false;
  OperandWalk<3> walk;  // of the result, lhs and rhs
  const void* lhs = nullptr;
  const void* rhs = nullptr;
  void* out = nullptr;
  float lhs_scale = 1.0F;
  float rhs_scale = 1.0F;
  std::int32_t lhs_zero_point = 0;
  std::int32_t rhs_zero_point = 0;
  float inv_scale = 1.0F;  // of the result
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  std::int32_t high = 255;
};
QUANTA_CUDA_ENTRY(combine_code_pairs, CodePairParams)

}  // namespace quanta::cuda
