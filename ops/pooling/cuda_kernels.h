#pragma once

// Private: pooling on a CUDA device.

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct PoolParams {
  cpu::PoolGeometry geometry;
  cpu::AverageRule rule;  // of an average
  DType dtype{};          // a float, QUInt8, QInt8 or QInt32 (only the largest of these)
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(pool_largest, PoolParams)
QUANTA_CUDA_ENTRY(pool_average, PoolParams)

/// y: Int64, the offset of each window's largest element in the whole input; -1 where there is
/// none. `column_major`: as cpu::max_pool_indices, of contiguous images.
struct FindLargestParams {
  PoolParams pool;  // dtypes as of the largest
  bool column_major = false;
};
QUANTA_CUDA_ENTRY(find_largest, FindLargestParams)

struct PoolNormParams {
  PoolParams pool;  // Float32 or Float64
  double p = 2.0;
};
QUANTA_CUDA_ENTRY(pool_norm, PoolNormParams)

}  // namespace quanta::cuda
