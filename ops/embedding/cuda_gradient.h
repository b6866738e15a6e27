#pragma once

// Private: where the gradients of bags go, on a CUDA device.

#include <cstdint>

#include "quanta/ops/embedding/cuda_kernels.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Float32 or Float64. The bags have been checked.
struct BagGradientParams {
  BagRows bags;
  BagMode mode = BagMode::Sum;
  DType dtype{};
  const void* table = nullptr;     // [rows, columns]
  const void* gradient = nullptr;  // [bags, columns]
  std::int64_t columns = 0;
  const void* factors = nullptr;  // of each index; null: 1
  std::int32_t* used = nullptr;   // of each bag: indices that count; for means

  // Of each index; one that no bag counts goes behind the last row.
  std::int64_t* rows = nullptr;
  std::int64_t* sources = nullptr;   // its bag
  void* shares = nullptr;            // what its row gets of the bag's gradient
  void* factor_gradients = nullptr;  // null: not wanted

  // Of each bag and column: the element that is the first of the largest; behind the last element
  // for a bag without indices.
  std::int64_t* largest = nullptr;
};
/// used += 1 for each index that its bag counts.
QUANTA_CUDA_ENTRY(count_used_indices, BagGradientParams)
/// rows, sources and shares. For sums and means.
QUANTA_CUDA_ENTRY(share_bags, BagGradientParams)
/// The products of gradient and row, summed up column by column as the CPU does.
QUANTA_CUDA_ENTRY(sum_factor_gradients, BagGradientParams)
/// For maxima.
QUANTA_CUDA_ENTRY(find_largest_rows, BagGradientParams)

}  // namespace quanta::cuda
