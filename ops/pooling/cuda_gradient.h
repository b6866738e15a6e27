#pragma once

// Private: the way back through pooling of floats on a CUDA device. Each input element adds up what
// the windows that see it send back, in the order of the outputs, as the CPU does.

#include <cstdint>

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Both tensors are dense in the geometry's order.
struct PoolGradientParams {
  cpu::PoolGeometry geometry;
  cpu::AverageRule rule;                // of an average
  const std::int64_t* where = nullptr;  // of a maximum: its offset in the input, from find_largest
  DType dtype{};                        // Float32, Float16 or BFloat16: sums are rounded once
  const void* gradient = nullptr;
  void* result = nullptr;
};
QUANTA_CUDA_ENTRY(spread_to_largest, PoolGradientParams)
QUANTA_CUDA_ENTRY(spread_to_all, PoolGradientParams)

}  // namespace quanta::cuda
