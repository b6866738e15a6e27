#pragma once

// Private: equal elements, or slices, in groups on a CUDA device.

#include <cstdint>

#include "quanta/ops/cuda/nonzero.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

struct HeadParams {
  DType dtype{};  // one that visit_ordered takes
  const void* x = nullptr;
  std::int64_t slice = 1;
  std::int64_t count = 0;               // of slices
  const std::int64_t* order = nullptr;  // of slices: equal ones are neighbours
  std::uint8_t* heads = nullptr;
};
/// heads = 1 where a slice differs from the one before, else 0.
QUANTA_CUDA_ENTRY(mark_heads, HeadParams)

struct GroupParams {
  std::int64_t count = 0;  // of slices
  std::int64_t groups = 0;
  const std::int64_t* order = nullptr;    // of slices
  const std::int64_t* heads = nullptr;    // of each group: where it begins in the order
  const std::int64_t* numbers = nullptr;  // of each place in the order: its group
  const std::int64_t* by_rank = nullptr;  // the groups in another order
  std::int64_t* ranks = nullptr;          // of the groups in it; null: in their own order
  std::int64_t* first = nullptr;          // the results, by rank
  std::int64_t* counts = nullptr;
  std::int64_t* inverse = nullptr;  // of each slice
};
/// first and counts, where they are wanted.
QUANTA_CUDA_ENTRY(describe_groups, GroupParams)
/// ranks[by_rank[i]] = i.
QUANTA_CUDA_ENTRY(rank_groups, GroupParams)
/// The group of each slice.
QUANTA_CUDA_ENTRY(number_slices, GroupParams)

/// The groups of `count` dense slices of `slice` elements (of elements: 1), least first.
class Groups {
 public:
  Groups(Device device, DType dtype, const void* x, std::int64_t count, std::int64_t slice);

  /// How many there are. Waits for the device.
  std::int64_t total() const { return heads_.total(); }
  enum class Order : std::uint8_t { ByValue, ByFirst };
  /// For each of `groups`: where it comes first, and how many slices it has; and the group of each
  /// slice.
  void write(std::int64_t groups, Order order, std::int64_t* first, std::int64_t* counts,
             std::int64_t* inverse) const;

 private:
  Device device_;
  std::int64_t count_;
  Buffer order_, flags_;
  Nonzero heads_;
};

}  // namespace quanta::cuda
