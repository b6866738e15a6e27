#pragma once

// Private: rows put in order on a CUDA device.
//
// A row is sorted as items that hold key and position, so that no two are equal and every sort is
// stable: tiles in shared memory by a bitonic network, then runs of tiles merged two by two. Where
// few of a long row are wanted, the best of each tile go on instead. Nothing waits for the host.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// What an item is.
enum class SortItems : std::uint8_t {
  Packed,  ///< the key's bits above the position's, in 64
  Pairs,   ///< 64 bits of each
  Slices,  ///< a position; slices of x are compared element by element
};

/// One pass over rows of items.
struct SortParams {
  SortItems kind{};
  DType dtype{};  // one that visit_ordered takes
  bool descending = false;
  int key_bits = 0;
  int position_bits = 0;
  const void* x = nullptr;    // [rows, x_length], or slices
  std::int64_t x_length = 0;  // of a row
  std::int64_t slice = 1;     // elements of a slice
  std::int64_t rows = 0;
  std::int64_t length = 0;     // of a row of `from`
  const void* from = nullptr;  // items; null: those of x
  std::int64_t span = 0;       // a tile (a power of two), or a run
  std::int64_t keep = 0;       // the first items of each tile (of each row, when runs are merged)
  std::int64_t to_length = 0;  // of a row of the result
  void* to = nullptr;          // items; null: the results
  void* values = nullptr;      // elements of x, or null
  std::int64_t* positions = nullptr;  // in the row of x, or null
};
/// Sorts each tile of `span` items, at most kSortTile.
QUANTA_CUDA_ENTRY(sort_tiles, SortParams)
/// Merges neighbouring runs of `span` items, a multiple of kSortTile.
QUANTA_CUDA_ENTRY(merge_runs, SortParams)

constexpr std::int64_t kSortTile = 2048;

/// Rows to be sorted.
struct SortCall {
  DType dtype{};
  const void* x = nullptr;  // [rows, length], dense
  std::int64_t rows = 1;
  std::int64_t length = 0;
  std::int64_t keep = 0;  // the first of each row that are wanted, 1 to length
  bool descending = false;
  int key_bits = 0;         // of Int64 numbers >= 0: as many as they have; 0: all
  std::int64_t slice = -1;  // 0 and more: x is one row of slices of so many elements, ascending
  void* values = nullptr;   // [rows, keep] of the dtype; null: not wanted
  std::int64_t* positions = nullptr;  // [rows, keep]; null: not wanted
};
/// Puts elements in order as sort() on the CPU does: equal ones by position, NaN as the largest.
void sort_rows(Device device, const SortCall& call);

}  // namespace quanta::cuda
