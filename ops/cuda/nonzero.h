#pragma once

// Private: the elements that are not 0, counted and placed on a CUDA device: each tile is counted,
// the counts are added up, and each tile then knows where its own begin.

#include <cstdint>

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/dtype.h"

namespace quanta {
class Dims;
}

namespace quanta::cuda {

constexpr std::int64_t kNonzeroTile = 2048;

struct NonzeroParams {
  DType dtype{};  // one that visit_ordered takes
  const void* x = nullptr;
  std::int64_t count = 0;
  std::int64_t tiles = 0;
  std::int64_t* starts = nullptr;  // of each tile, and the end of all
  int rank = 0;                    // of x
  std::int64_t sizes[StridedWalk::kMostDims] = {};
  std::int64_t* places = nullptr;   // [nonzero elements, rank]: where each is; null: not wanted
  std::int64_t* numbers = nullptr;  // [count]: how many up to each element, without 1; or null
};
/// starts = the counts of the tiles.
QUANTA_CUDA_ENTRY(count_nonzero_tiles, NonzeroParams)
/// By one block: each count becomes the sum of those before it, and starts[tiles] that of all.
QUANTA_CUDA_ENTRY(add_up_tiles, NonzeroParams)
QUANTA_CUDA_ENTRY(place_nonzero, NonzeroParams)

/// The elements of a dense array that are not 0. The array has to live as long.
class Nonzero {
 public:
  Nonzero(Device device, DType dtype, const void* x, std::int64_t count);

  /// How many there are. Waits for the device.
  std::int64_t total() const;
  /// places [total, rank]: the indices of each in an array of these sizes.
  void write_places(const Dims& sizes, std::int64_t* places) const;
  /// For each element, which of them is the last one up to it; 0 is the first.
  void write_numbers(std::int64_t* numbers) const;

 private:
  Device device_;
  NonzeroParams params_;
  Buffer starts_;
};

}  // namespace quanta::cuda
