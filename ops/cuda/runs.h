#pragma once

// Private: updates that are grouped by where they go, and combined one after the other, on a CUDA
// device: sums come out as the CPU's, to the last bit.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/combine_math.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// Each target's updates are taken by one thread for each element of a slice, so that the time is
/// that of the longest run.
struct RunParams {
  DType dtype{};  // a float, an integer or Bool, whose elements count as 0 and 1
  math::Combine how{};
  const std::int64_t* targets = nullptr;  // in order; others than 0..slices - 1 are left out
  const std::int64_t* order = nullptr;    // the updates in order; null: no target comes twice
  std::int64_t updates = 0;
  std::int64_t slices = 0;
  std::int64_t length = 0;                // of a slice
  std::int64_t repeats = 1;               // parts of `from` and `to` that the targets are for
  const void* from = nullptr;             // [repeats, updates or what sources name, length]
  std::int64_t from_slices = 0;           // of a part of `from`, where there are several
  const std::int64_t* sources = nullptr;  // of each update: a slice of `from`; null: its own number
  const void* factors = nullptr;          // of each update, for floats; null: none
  void* to = nullptr;                     // [repeats, slices, length]
};
/// to[target] = combine(to[target], from[update] * factor) for each update.
QUANTA_CUDA_ENTRY(combine_runs, RunParams)

/// Targets in order, and the updates that they are of, equal targets by update.
struct Runs {
  Buffer targets;
  Buffer order;
};
/// `targets` are 0 to `slices` at most, or below 0.
Runs sort_targets(Device device, const std::int64_t* targets, std::int64_t updates,
                  std::int64_t slices);

/// combine_runs for targets in any order: params.targets are those of updates 0, 1, ...
void combine_updates(Device device, RunParams params);

}  // namespace quanta::cuda
