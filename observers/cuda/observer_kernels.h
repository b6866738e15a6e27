#pragma once

// Private: what observers ask of a tensor on a CUDA device. They trust their arguments.

#include <cstdint>

#include "quanta/observers/detail/bin_math.h"
#include "quanta/ops/cuda/affine_places.h"
#include "quanta/ops/cuda/range.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// The range of the elements of each entry of statistics. An entry's elements are shared out to
/// `chunks`, whose ranges are then joined.
struct EntryRangesParams {
  AffinePlaces places;
  const float* floats = nullptr;
  RangeOver over = RangeOver::All;
  int chunks = 1;
  RangeOfFloats* parts = nullptr;   // [chunks, entries]
  RangeOfFloats* ranges = nullptr;  // [entries]
};
QUANTA_CUDA_ENTRY(find_entry_ranges, EntryRangesParams)
QUANTA_CUDA_ENTRY(join_entry_ranges, EntryRangesParams)

struct CountBinsParams {
  detail::BinScale scale;
  const float* edges = nullptr;  // [bins + 1]: bins of any widths instead of equal ones; or null
  const float* floats = nullptr;
  std::int64_t count = 0;
  bool counts_ends = false;  // what lies outside counts in the first and the last bin
  int blocks = 1;
  unsigned long long* counts = nullptr;  // [bins]: added to
};
QUANTA_CUDA_ENTRY(count_bins, CountBinsParams)

/// Counts the elements of each entry of statistics in bins of its own, those outside in the first
/// and the last one.
struct CountEntryBinsParams {
  AffinePlaces places;
  const float* floats = nullptr;
  std::int64_t bins = 1;                     // of each scale
  const detail::BinScale* scales = nullptr;  // [entries]
  unsigned long long* counts = nullptr;      // [entries, bins]: added to
};
QUANTA_CUDA_ENTRY(count_entry_bins, CountEntryBinsParams)

}  // namespace quanta::cuda
