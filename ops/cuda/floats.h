#pragma once

// Private: elementwise kernels on floats, which several families call on a CUDA device. One IEEE
// operation each, so that the results are the CPU's; those of 16 bits are widened and rounded once.

#include <cstdint>

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

enum class FloatStep : std::uint8_t { Add, Sub, Mul, Div, AddReLU };

struct FloatBinaryParams {
  int rank = 0;
  std::int64_t count = 0;
  std::int64_t sizes[StridedWalk::kMostDims] = {};
  std::int64_t strides[3][StridedWalk::kMostDims] = {};  // of lhs, rhs and the result
  DType dtype{};                                         // Float32, Float16 or BFloat16
  const void* lhs = nullptr;
  const void* rhs = nullptr;  // null: the number
  void* out = nullptr;
  float number = 0.0F;
  FloatStep step = FloatStep::Add;
};
QUANTA_CUDA_ENTRY(combine_floats, FloatBinaryParams)

struct ClampParams {
  DType dtype{};  // Float32, Float16 or BFloat16
  std::int64_t count = 0;
  const void* x = nullptr;
  void* y = nullptr;
  float low = 0.0F;
  float high = 0.0F;
};
QUANTA_CUDA_ENTRY(clamp_floats, ClampParams)

/// out = lhs step rhs, broadcast; an undefined rhs stands for the number.
void combine(FloatStep step, const Tensor& lhs, const Tensor& rhs, float number, const Tensor& out);
/// out = min(max(x, low), high); NaN stays. Both dense and of one memory order.
void clamp(const Tensor& x, const Tensor& out, float low, float high);

}  // namespace quanta::cuda
