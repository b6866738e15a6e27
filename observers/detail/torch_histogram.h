#pragma once

// Private: the arithmetic of HistogramObserver on plain arrays.

#include <cstdint>
#include <span>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// How many values lie in each of `bins` equal bins of [low, high], as torch.histc counts. All of
/// the values have to be finite and lie in that range. A range of one value is widened by 1 on
/// either side.
std::vector<float> torch_histc(std::span<const float> x, std::int64_t bins, float low, float high);
/// The same for a dense Float32 tensor on either device. On CUDA values outside of the range, and
/// infinite ones, may be among them: they do not count.
std::vector<float> torch_histc(const Tensor& dense, std::int64_t bins, float low, float high);

/// The counts of `histogram` over [old_min, old_max] moved to as many bins over
/// [new_min, new_max], which holds the old range.
std::vector<float> rescale_histogram(const std::vector<float>& histogram, float old_min,
                                     float old_max, float new_min, float new_max);

/// First and last bin of the part to keep, for `levels` quantization steps.
struct BinRange {
  std::int64_t first;
  std::int64_t last;
};
BinRange search_bins(const std::vector<float>& histogram, float min, float max, double levels);

}  // namespace quanta::detail
