#pragma once

// Private: library.h in plain loops, an element of the result for each thread, as the emulated
// device runs it. On a GPU they are a second opinion on what the libraries give.

#include "quanta/ops/cuda/library.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct LoopProductParams {
  FloatProduct product;
  ProductOperands operands;
};
QUANTA_CUDA_ENTRY(loop_product, LoopProductParams)

struct LoopConvolutionParams {
  FloatConvolution convolution;
  ConvOperands operands;
};
QUANTA_CUDA_ENTRY(loop_convolution, LoopConvolutionParams)

/// y = relu(y + bias of its channel), where channels are neighbours. A NaN stays one, which the
/// libraries do not promise.
struct AddBiasParams {
  DType dtype = DType::Float32;  // Float32, Float16 or BFloat16
  std::int64_t count = 0;
  std::int64_t channels = 1;
  const void* bias = nullptr;  // null: nothing
  void* y = nullptr;
  bool relu = false;
};
QUANTA_CUDA_ENTRY(add_bias, AddBiasParams)

}  // namespace quanta::cuda
