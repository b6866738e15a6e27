#pragma once

// Private: elements that index tensors name, picked on a CUDA device: embeddings, index_select,
// gather, take, index.

#include <cstdint>
#include <span>

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta {
class Dims;
}

namespace quanta::cuda {

/// to[i] = from[i's place in x, and the position times `step` of each index tensor]. Items are moved
/// as they are. Positions outside low..length - 1 raise `fault`, and nothing is moved for them.
struct PickParams {
  struct Index {
    const void* positions = nullptr;  // Int64 or Int32
    bool is_long = true;
    std::int64_t strides[StridedWalk::kMostDims] = {};
    std::int64_t low = 0;
    std::int64_t length = 0;
    std::int64_t step = 0;  // in items
  };
  StridedWalk walk;  // first: to, second: from, in items
  const void* from = nullptr;
  void* to = nullptr;
  int item_bytes = 0;  // 1, 2, 4, 8 or 16
  int count = 0;       // of index tensors
  Index index[StridedWalk::kMostDims];
  std::int32_t* fault = nullptr;  // 0 before
};
QUANTA_CUDA_ENTRY(pick_items, PickParams)

/// An index tensor, which Int64 or Int32 `positions` along a dimension are read from.
struct PickedDim {
  const Tensor& positions;
  const Dims& strides;  ///< of the positions, for each dimension of the result
  std::int64_t low = 0;
  std::int64_t length = 0;
  std::int64_t step = 0;  ///< elements of x from one position to the next
};

PickParams::Index index_of(const PickedDim& dim);

/// Fills `out` with elements of `x`, one dtype of whole bytes: `strides` are those of x for each
/// dimension of the result, without what positions add. Waits for the device: false when a position
/// was outside, and then `out` holds what nobody may see.
bool pick(const Tensor& x, const Tensor& out, const Dims& strides,
          std::span<const PickedDim> positions);

}  // namespace quanta::cuda
