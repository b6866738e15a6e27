#pragma once

// Private: the loops of the observers. They trust their arguments.

#include <cstdint>

namespace quanta::cpu {

struct MinMax {
  float min;
  float max;
};

/// Smallest and largest of `count` >= 1 values; NaN in both when there is one.
MinMax min_max(const float* x, std::int64_t count);

/// The same for each column of a [rows, columns] matrix, on top of what min and max hold.
void min_max_columns(const float* x, std::int64_t rows, std::int64_t columns, float* min,
                     float* max);

/// How torch.histc places a value: trunc((x - low) * bins / (high - low)) in float32.
struct BinRule {
  float low;
  float width;  ///< high - low, > 0 and finite
  std::int32_t bins;
};

/// Adds 1 to counts[bin] for each value, all of which lie in [low, high]. `tables` (1 or 4) tables
/// of `bins` counters each are used in turn: their sum is the histogram. Runs of one value (zeros
/// behind a relu) would otherwise wait for their own counter.
void count_bins(const float* x, std::int64_t count, const BinRule& rule, std::int32_t tables,
                std::uint32_t* counts);

/// Terms of the quantization error of cropping to a part of the histogram.
struct ErrorTerms {
  float start;      ///< first bin of the part
  float bin_width;  ///< of the source
  float dst_width;  ///< of a quantization step
  float half_dst;   ///< dst_width / 2, rounded from double
  float last_dst;   ///< number of steps - 1
};

/// errors[i] for source bin index[i] with the given density, in float32 operation by operation as
/// torch's HistogramObserver computes it.
void quantization_errors(const float* index, const float* density, std::int64_t count,
                         const ErrorTerms& terms, float* errors);

}  // namespace quanta::cpu
