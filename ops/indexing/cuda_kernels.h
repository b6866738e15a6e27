#pragma once

// Private: masks and positions on a CUDA device. Items are moved as they are, whatever they mean.

#include <cstdint>

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// to = mask ? item : x.
struct FillMaskedParams {
  int rank = 0;
  std::int64_t count = 0;
  std::int64_t sizes[StridedWalk::kMostDims] = {};
  std::int64_t strides[3][StridedWalk::kMostDims] = {};  // of to, mask and x, in items
  void* to = nullptr;
  const bool* mask = nullptr;
  const void* x = nullptr;
  std::uint64_t item = 0;  // in its first bytes
  int item_bytes = 0;      // 1, 2, 4 or 8
};
QUANTA_CUDA_ENTRY(fill_masked_items, FillMaskedParams)

/// A dense array of Int64 or Int32.
struct Positions {
  const void* data = nullptr;
  bool is_long = true;
  std::int64_t count = 0;
};

/// to [outer, depth, inner] = values[1] where position [outer, inner] says, else values[0].
struct OneHotParams {
  Positions positions;
  std::int64_t depth = 0;
  std::int64_t inner = 0;
  const void* values = nullptr;
  void* to = nullptr;
  int item_bytes = 0;
};
QUANTA_CUDA_ENTRY(one_hot_items, OneHotParams)

/// to = the positions, those below 0 with `length` added.
struct WrapParams {
  Positions positions;
  std::int64_t length = 0;
  std::int64_t* to = nullptr;
};
QUANTA_CUDA_ENTRY(wrap_positions, WrapParams)

}  // namespace quanta::cuda
