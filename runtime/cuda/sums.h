#pragma once

// Private: sums of gradients on a CUDA device, float or double, in the CPU's order.

#include <cstdint>

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct AddParams {
  StridedWalk walk;  // first: to, second: from
  bool is_double = false;
  void* to = nullptr;
  const void* from = nullptr;
};
/// to += from.
QUANTA_CUDA_ENTRY(add_items, AddParams)

struct SumMiddleParams {
  bool is_double = false;
  std::int64_t outer = 0;
  std::int64_t middle = 0;
  std::int64_t inner = 0;
  const void* x = nullptr;  // [outer, middle, inner]
  void* sums = nullptr;     // [outer, inner]
};
/// Sums over the middle in double, one after the other.
QUANTA_CUDA_ENTRY(sum_middle, SumMiddleParams)

}  // namespace quanta::cuda
