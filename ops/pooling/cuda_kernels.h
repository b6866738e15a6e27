#pragma once

// Private: pooling on a CUDA device.

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct PoolParams {
  cpu::PoolGeometry geometry;
  cpu::AverageRule rule;  // of an average
  DType dtype{};          // Float32, QUInt8, QInt8 or QInt32 (only the largest of these)
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(pool_largest, PoolParams)
QUANTA_CUDA_ENTRY(pool_average, PoolParams)

}  // namespace quanta::cuda
