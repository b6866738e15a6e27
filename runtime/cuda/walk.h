#pragma once

// Private, for .cu files only: places in strided tensors.

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {

struct Places {
  std::int64_t first = 0;
  std::int64_t second = 0;
};

template <typename Int>
SIMT_DEVICE Places places_by(const StridedWalk& walk, Int flat) {
  Places at;
  for (int d = walk.rank - 1; d >= 0; --d) {
    Int rest = flat;  // what is left in the outermost dimension
    if (d > 0) {
      const auto size = static_cast<Int>(walk.sizes[d]);
      flat /= size;
      rest -= flat * size;
    }
    const auto index = static_cast<std::int64_t>(rest);
    at.first += index * walk.first[d];
    at.second += index * walk.second[d];
  }
  return at;
}

/// Of the element with this number in logical order.
SIMT_DEVICE Places places_of(const StridedWalk& walk, std::int64_t flat) {
  // A division of 64 bits takes a GPU many times as long as one of 32.
  return walk.count >> 32 == 0 ? places_by(walk, static_cast<std::uint32_t>(flat))
                               : places_by(walk, static_cast<std::uint64_t>(flat));
}

}  // namespace quanta::cuda
