#pragma once

// Private: where the elements of several tensors of the same sizes lie, for kernels of one thread an
// element.

#include <array>
#include <cstddef>
#include <cstdint>

#include "quanta/runtime/dims.h"
#include "quanta/runtime/host_device.h"

namespace quanta::cuda {

/// Of the result (first) and its operands, in the order of the result's memory, the innermost
/// dimension last. A broadcast operand has strides of 0. Strides in elements.
template <int kOperands>
struct OperandWalk {
  int rank = 0;
  std::int64_t count = 1;
  std::int64_t sizes[Dims::kMaxDims] = {};
  std::int64_t strides[kOperands][Dims::kMaxDims] = {};

  OperandWalk() = default;
  OperandWalk(const Dims& all_sizes, const std::array<const Dims*, kOperands>& all_strides) {
    for (std::size_t d = 0; d < all_sizes.size(); ++d) {
      count *= all_sizes[d];
      if (all_sizes[d] == 1) continue;
      // By falling stride of the result; equal ones keep their order.
      int at = rank++;
      for (; at > 0 && strides[0][at - 1] < (*all_strides[0])[d]; --at) move(at - 1, at);
      sizes[at] = all_sizes[d];
      for (std::size_t k = 0; k < kOperands; ++k) strides[k][at] = (*all_strides[k])[d];
    }
    // Neighbours that lie behind each other in all tensors are one dimension.
    int kept = 0;
    for (int d = 0; d < rank; ++d) {
      if (kept > 0 && continues(kept - 1, d)) {
        const std::int64_t outer = sizes[kept - 1];
        move(d, kept - 1);
        sizes[kept - 1] *= outer;
      } else {
        move(d, kept++);
      }
    }
    rank = kept;
  }

  /// Of the element with this number.
  QUANTA_HOST_DEVICE void places(std::int64_t flat, std::int64_t (&at)[kOperands]) const {
    if (count >> 32 == 0) {  // a division of 64 bits takes a GPU many times as long
      places_by(static_cast<std::uint32_t>(flat), at);
    } else {
      places_by(static_cast<std::uint64_t>(flat), at);
    }
  }

 private:
  template <typename Int>
  QUANTA_HOST_DEVICE void places_by(Int flat, std::int64_t (&at)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      Int index = flat;  // what is left in the outermost dimension
      if (d > 0) {
        const auto size = static_cast<Int>(sizes[d]);
        flat /= size;
        index -= flat * size;
      }
      for (int k = 0; k < kOperands; ++k) {
        at[k] += static_cast<std::int64_t>(index) * strides[k][d];
      }
    }
  }
  void move(int from, int to) {
    sizes[to] = sizes[from];
    for (int k = 0; k < kOperands; ++k) strides[k][to] = strides[k][from];
  }
  bool continues(int outer, int inner) const {
    for (int k = 0; k < kOperands; ++k) {
      if (strides[k][outer] != strides[k][inner] * sizes[inner]) return false;
    }
    return true;
  }
};

}  // namespace quanta::cuda
