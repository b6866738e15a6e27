#include "quanta/observers/modelopt/detail/histogram_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt::detail {
namespace {

void check_grid(const Counts& histogram, const SearchGrid& grid, std::int64_t last) {
  QUANTA_CHECK(grid.stride >= 1, "HistogramCalibrator: stride: expected at least 1, got {}",
               grid.stride);
  QUANTA_CHECK(grid.start_bin >= 1 && grid.start_bin <= last,
               "HistogramCalibrator: start_bin: expected 1..{} with {} bins, got {}", last,
               histogram.counts.size(), grid.start_bin);
}

double total_of(const std::vector<std::int64_t>& counts, std::size_t from = 0) {
  return static_cast<double>(std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(from),
                                             counts.end(), std::int64_t{0}));
}

// The level of each of the first `bins` bins, whose edges are spread evenly over the levels.
class Levels {
 public:
  Levels(std::size_t bins, std::size_t levels)
      : width_(static_cast<double>(bins) / static_cast<double>(levels)),
        levels_(levels),
        end_(static_cast<double>(bins)) {}

  double edge(std::size_t level) const {
    return level == levels_ ? end_ : static_cast<double>(level) * width_;
  }
  /// Bins are asked for in rising order.
  std::size_t of(std::size_t bin) {
    while (level_ + 1 < levels_ && edge(level_ + 1) <= static_cast<double>(bin)) ++level_;
    return level_;
  }

 private:
  double width_;
  std::size_t levels_;
  double end_;
  std::size_t level_ = 0;
};

// What the first `bins` bins look like after quantization: the average of each level's bins that
// are not empty.
std::vector<double> quantized_counts(const std::vector<std::int64_t>& counts, std::size_t bins,
                                     std::size_t level_count) {
  std::vector<double> sums(level_count);
  std::vector<double> used(level_count);
  std::vector<std::size_t> level_of(bins);
  Levels levels(bins, level_count);
  for (std::size_t j = 0; j < bins; ++j) {
    level_of[j] = levels.of(j);
    if (counts[j] == 0) continue;
    sums[level_of[j]] += static_cast<double>(counts[j]);
    used[level_of[j]] += 1.0;
  }
  std::vector<double> result(bins);
  for (std::size_t j = 0; j < bins; ++j) {
    if (counts[j] != 0) result[j] = sums[level_of[j]] / used[level_of[j]];
  }
  return result;
}

// Kullback-Leibler divergence of the normalized distributions.
double divergence(const std::vector<double>& reference, const std::vector<double>& quantized) {
  const double reference_sum = std::accumulate(reference.begin(), reference.end(), 0.0);
  const double quantized_sum = std::accumulate(quantized.begin(), quantized.end(), 0.0);
  double result = 0.0;
  for (std::size_t j = 0; j < reference.size(); ++j) {
    const double p = reference[j] / reference_sum;
    if (p == 0.0) continue;
    const double q = quantized[j] / quantized_sum;
    // 0 / 0 of an empty histogram counts as different as can be.
    if (!(q > 0.0)) return std::numeric_limits<double>::infinity();
    result += p * std::log(p / q);
  }
  return std::isnan(result) ? std::numeric_limits<double>::infinity() : result;
}

double entropy_loss(const std::vector<std::int64_t>& counts, std::size_t bins, std::size_t levels,
                    double total) {
  const double outliers = total_of(counts, bins);
  const std::vector<double> quantized = quantized_counts(counts, bins, levels);
  std::vector<double> reference(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(bins));
  reference.back() += outliers;
  const double kept = std::accumulate(quantized.begin(), quantized.end(), 0.0) + outliers;
  QUANTA_CHECK(std::nearbyint(kept) == total,
               "HistogramCalibrator: histogram: expected the quantized counts to sum to {}, got {}",
               total, kept);
  return divergence(reference, quantized);
}

float quantized_centre(float centre, float amax, const SearchGrid& grid) {
  if (grid.num_bits.is_float) return math::scaled_e4m3(centre, amax);
  return math::fake_tensor_quant(
      centre, amax, math::amax_grid(grid.num_bits.bits, grid.is_unsigned, /*narrow_range=*/true));
}

}  // namespace

float amax_by_percentile(const Counts& histogram, double percentile) {
  QUANTA_CHECK(percentile >= 0.0 && percentile <= 100.0,
               "HistogramCalibrator: percentile: expected 0..100, got {}", percentile);
  const double total = total_of(histogram.counts);
  double below = 0.0;
  std::size_t index = 0;
  for (; index < histogram.counts.size(); ++index) {
    below += static_cast<double>(histogram.counts[index]) / total;
    if (below >= percentile / 100.0) break;
  }
  return histogram.edges[index];
}

float amax_by_mse(const Counts& histogram, const SearchGrid& grid) {
  QUANTA_CHECK(!grid.num_bits.is_float || grid.num_bits == NumBits::floating(4, 3),
               "HistogramCalibrator: num_bits: expected an integer or (4, 3), got {}",
               to_string(grid.num_bits));
  const std::size_t bins = histogram.counts.size();
  check_grid(histogram, grid, static_cast<std::int64_t>(bins) - 1);
  std::vector<float> centres(bins);
  for (std::size_t i = 0; i < bins; ++i) {
    centres[i] = (histogram.edges[i + 1] + histogram.edges[i]) / 2.0F;
  }
  float best_error = std::numeric_limits<float>::infinity();
  float best = centres[static_cast<std::size_t>(grid.start_bin)];
  for (auto i = static_cast<std::size_t>(grid.start_bin); i < bins;
       i += static_cast<std::size_t>(grid.stride)) {
    double sum = 0.0;
    for (std::size_t j = 0; j < bins; ++j) {
      const float error = quantized_centre(centres[j], centres[i], grid) - centres[j];
      sum += static_cast<double>(error * error * static_cast<float>(histogram.counts[j]));
    }
    const auto error = static_cast<float>(sum / static_cast<double>(bins));
    if (error < best_error) {
      best_error = error;
      best = centres[i];
    }
  }
  return best;
}

float amax_by_entropy(Counts histogram, const SearchGrid& grid) {
  QUANTA_CHECK(
      !grid.num_bits.is_float && grid.num_bits.bits >= 1 && grid.num_bits.bits <= 16,
      "HistogramCalibrator: num_bits: expected an integer of 1..16 bits for entropy, got {}",
      to_string(grid.num_bits));
  std::vector<std::int64_t>& counts = histogram.counts;
  const std::size_t bins = counts.size();
  check_grid(histogram, grid, static_cast<std::int64_t>(bins));
  // Zeros of a ReLU would outweigh everything.
  if (bins > 1) counts[0] = counts[1];
  const double total = total_of(counts);
  const std::size_t levels = std::size_t{1}
                             << (grid.num_bits.bits - 1 + (grid.is_unsigned ? 1 : 0));
  double best_loss = std::numeric_limits<double>::infinity();
  std::size_t best = bins;
  for (auto i = static_cast<std::size_t>(grid.start_bin); i <= bins;
       i += static_cast<std::size_t>(grid.stride)) {
    const double loss = entropy_loss(counts, i, levels, total);
    if (loss <= best_loss) {
      best_loss = loss;
      best = i;
    }
  }
  return histogram.edges[best];
}

}  // namespace quanta::modelopt::detail
