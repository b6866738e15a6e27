#pragma once

// Private: counting values, and histograms as tensors of a state.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quanta/observers/detail/bin_math.h"
#include "quanta/observers/histogram.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Bin numbers stay exact in float32.
inline constexpr std::int64_t kMostBins = std::int64_t{1} << 24;

/// What becomes of values outside of the range that is counted.
enum class Outside : std::uint8_t {
  Absent,   ///< there are none: the caller has looked, and all values are finite
  Skipped,  ///< they are not counted
  AtEnds,   ///< they count in the first and the last bin; NaN is not counted
};

/// How many values lie in each of `bins` equal bins of [low, high], as torch.histc counts: a value
/// is in bin trunc((value - low) * bins / (high - low)), calculated in float32 from left to right,
/// and `high` in the last one. `low` < `high`, both finite, or `low` == `high`: all values in that
/// range are in the first bin then.
std::vector<std::int64_t> count_values(std::span<const float> x, std::int64_t bins, float low,
                                       float high, Outside outside);
/// The same for a dense Float32 tensor on either device; on CUDA one counts what is Absent on the
/// CPU as Skipped.
std::vector<std::int64_t> count_values(const Tensor& dense, std::int64_t bins, float low,
                                       float high, Outside outside);

/// How many of the values lie between each two neighbours of rising edges, as numpy.histogram counts.
std::vector<std::int64_t> count_between(std::span<const float> x, std::span<const float> edges);
/// The same for a dense Float32 tensor on a CUDA device.
std::vector<std::int64_t> count_between(const Tensor& dense, std::span<const float> edges);

/// `bins` equal bins of [low, high] for bin_of.
BinScale bin_scale(float low, float high, std::int64_t bins);

/// Adds to float32 counts one by one, so that they stop growing at 2^24 as those of torch and AIMET
/// do.
void add_counts(std::vector<float>& counts, const std::vector<std::int64_t>& batch);

/// The histograms of statistics of `shape`, one for each entry, as tensors histogram [shape, bins],
/// min_val and max_val [shape], and bin_edges [shape, edges] if there are any. Integer counts are
/// Int64. Nothing for no histogram at all.
template <typename Count>
void save_histograms(StateDict& state, const std::string& prefix,
                     std::span<const Histogram<Count>> histograms, const Dims& shape);

/// Reads them back. Throws ArgumentError `load_state_dict: <name>: ...` for sizes that do not
/// belong together, counts that are no finite numbers >= 0, ranges or edges upside down.
template <typename Count>
std::vector<Histogram<Count>> load_histograms(const StateDict& state, const std::string& prefix,
                                              const Dims& shape);

}  // namespace quanta::detail
