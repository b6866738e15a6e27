#pragma once

// Private, for .cu files only: places in strided tensors.

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {

struct Places {
  std::int64_t first = 0;
  std::int64_t second = 0;
};

/// Of the element with this number in logical order.
SIMT_DEVICE Places places_of(const StridedWalk& walk, std::int64_t flat) {
  Places at;
  for (int d = walk.rank - 1; d >= 0; --d) {
    const std::int64_t index = flat % walk.sizes[d];
    flat /= walk.sizes[d];
    at.first += index * walk.first[d];
    at.second += index * walk.second[d];
  }
  return at;
}

}  // namespace quanta::cuda
