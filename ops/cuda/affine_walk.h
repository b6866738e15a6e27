#pragma once

// Private, for .cu files only: places in AffinePlaces.

#include <cstdint>

#include "quanta/ops/cuda/affine_places.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {

/// The parameter of the element with this place in memory.
SIMT_DEVICE std::int64_t parameter_of(const AffinePlaces& places, std::int64_t element) {
  std::int64_t parameter = 0;
  for (int d = places.rank - 1; d >= 0; --d) {
    const std::int64_t index = d == 0 ? element : element % places.sizes[d];
    element /= places.sizes[d];
    parameter += index * places.strides[d];
  }
  return parameter;
}

/// The elements of one parameter, in the order of memory.
class ElementsOf {
 public:
  SIMT_DEVICE ElementsOf(const AffinePlaces& places, std::int64_t parameter)
      : places_(places), count_(places.count / places.parameters) {
    for (int d = 0; d < places.rank; ++d) {
      if (places.strides[d] == 0) continue;
      first_ += parameter / places.strides[d] % places.sizes[d] * places.steps[d];
    }
  }
  SIMT_DEVICE std::int64_t operator[](std::int64_t i) const {
    std::int64_t at = first_;
    for (int d = places_.rank - 1; d >= 0; --d) {
      if (places_.strides[d] != 0) continue;
      at += i % places_.sizes[d] * places_.steps[d];
      i /= places_.sizes[d];
    }
    return at;
  }
  /// How many of them lie before this place in memory.
  SIMT_DEVICE std::int64_t before(std::int64_t place) const {
    std::int64_t low = 0;
    std::int64_t high = count_;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if ((*this)[middle] < place) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  const AffinePlaces& places_;
  std::int64_t count_;
  std::int64_t first_ = 0;
};

}  // namespace quanta::cuda
