#pragma once

// Private: how an amax is found in a histogram.

#include <cstdint>

#include "quanta/observers/histogram.h"
#include "quanta/ops/block_quant.h"

namespace quanta::modelopt::detail {

using Counts = Histogram<std::int64_t>;

struct SearchGrid {
  NumBits num_bits;
  bool is_unsigned = false;
  std::int64_t stride = 1;
  std::int64_t start_bin = 128;
};

/// All throw ArgumentError for options that do not suit.
float amax_by_percentile(const Counts& histogram, double percentile);
float amax_by_mse(const Counts& histogram, const SearchGrid& grid);
float amax_by_entropy(Counts histogram, const SearchGrid& grid);

}  // namespace quanta::modelopt::detail
