#pragma once

// Private: updates that replace or change elements at places that an index names, on a CUDA device.

#include <cstdint>

#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/combine_math.h"

namespace quanta {
class Dims;
}

namespace quanta::cuda {

struct ChooseParams {
  const std::int64_t* targets = nullptr;  // of each update
  std::int64_t updates = 0;               // below 2^31
  std::int32_t* winners = nullptr;        // of each target; -1 before
};
/// The last update of each target.
QUANTA_CUDA_ENTRY(choose_winners, ChooseParams)

struct PutParams {
  const std::int64_t* targets = nullptr;  // of each update; in order, where `order` is given
  const std::int64_t* order = nullptr;    // the updates in order; the last of a run is put
  const std::int32_t* winners = nullptr;  // without an order: of each target, the one that is put
  std::int64_t updates = 0;
  std::int64_t length = 0;     // items of a slice
  StridedWalk slices;          // first: where the slice of a target begins in `to`
  StridedWalk items;           // first: where the items of a slice lie from there
  const void* from = nullptr;  // [updates, length]
  void* to = nullptr;
  int item_bytes = 0;  // 1, 2, 4, 8 or 16
};
QUANTA_CUDA_ENTRY(put_items, PutParams)

struct PutCacheParams {
  const void* x = nullptr;       // [batch, lines, length, inner]
  const void* update = nullptr;  // [batch, lines, count, inner]
  void* to = nullptr;            // as x
  int item_bytes = 0;            // 1, 2, 4, 8 or 16
  std::int64_t items = 0;        // of x
  std::int64_t lines = 0;
  std::int64_t length = 0;
  std::int64_t count = 0;
  std::int64_t inner = 0;
  const void* start = nullptr;  // of each batch, Int64 or Int32; null: 0
  bool is_long = true;
  std::int64_t start_stride = 0;
  bool circular = false;
  std::int32_t* fault = nullptr;  // raised by a start beyond the cache; 0 before
};
/// to = x with the update from start[batch] on.
QUANTA_CUDA_ENTRY(put_cache, PutCacheParams)

/// How the slices that targets number lie in a tensor: targets count `sizes` in their order.
struct SlicePlaces {
  const Dims& sizes;
  const Dims& strides;
  const Dims& rest;  ///< the sizes of a slice
  const Dims& rest_strides;
};
/// Puts updates [targets..., rest...], dense, where `targets` (Int64, dense, none outside) say; the
/// last one of each target stays.
void put_updates(const Tensor& targets, const Tensor& updates, const Tensor& out,
                 const SlicePlaces& places);
/// Combines them with `out`, dense slices of `length` plain elements, in the order of updates.
void combine_updates(math::Combine how, const Tensor& targets, std::int64_t length,
                     const Tensor& updates, const Tensor& out);

/// The widest items, up to 16 bytes, in which lines of `count` items of `bytes` bytes can be moved
/// between these addresses.
int widest_item(int bytes, std::int64_t count, const void* one, const void* other,
                const void* third);

}  // namespace quanta::cuda
