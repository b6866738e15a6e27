#pragma once

// Private: how an amax is found in a histogram.

#include <cstdint>
#include <vector>

#include "quanta/ops/block_quant.h"

namespace quanta::modelopt::detail {

struct Histogram {
  std::vector<std::int64_t> counts;
  std::vector<float> edges;  ///< at least one more
};

struct SearchGrid {
  NumBits num_bits;
  bool is_unsigned = false;
  std::int64_t stride = 1;
  std::int64_t start_bin = 128;
};

/// All throw ArgumentError for options that do not suit.
float amax_by_percentile(const Histogram& histogram, double percentile);
float amax_by_mse(const Histogram& histogram, const SearchGrid& grid);
float amax_by_entropy(Histogram histogram, const SearchGrid& grid);

}  // namespace quanta::modelopt::detail
