#include "quanta/observers/modelopt/detail/histogram_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

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

double total_of(const std::vector<std::int64_t>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
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

// A search looks at each candidate's levels or bins; one that takes more steps runs for minutes.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 32U;

void check_steps(std::string_view method, const SearchGrid& grid, std::size_t bins,
                 std::int64_t candidates, std::size_t steps_of_each) {
  const auto each = static_cast<std::int64_t>(std::max<std::size_t>(steps_of_each, 1));
  QUANTA_CHECK(candidates <= kMostSteps / each,
               "HistogramCalibrator: stride: expected one with which {} takes at most {} steps of "
               "{} candidates in {} bins, got {}; a larger stride or fewer bins take less",
               method, kMostSteps, candidates, bins, grid.stride);
}

void check_steps(std::string_view method, const SearchGrid& grid, std::size_t bins,
                 std::size_t steps_of_each) {
  check_steps(method, grid, bins,
              (static_cast<std::int64_t>(bins) - grid.start_bin) / grid.stride + 1, steps_of_each);
}

std::vector<std::size_t> used_bins(const std::vector<std::int64_t>& counts) {
  std::vector<std::size_t> used;
  for (std::size_t j = 0; j < counts.size(); ++j) {
    if (counts[j] != 0) used.push_back(j);
  }
  return used;
}

// How unlike a histogram clipped after some bins and its quantized form are: the Kullback-Leibler
// divergence of the normalized distributions. Each level's bins that are not empty become their
// average; what is clipped counts in the last bin.
class EntropySearch {
 public:
  EntropySearch(const std::vector<std::int64_t>& counts, std::size_t levels)
      : counts_(counts), used_(detail::used_bins(counts)), levels_(levels) {
    const std::size_t bins = counts.size();
    sums_.resize(bins + 1);
    used_before_.resize(bins + 1);
    information_.resize(bins + 1);
    for (std::size_t j = 0; j < bins; ++j) {
      sums_[j + 1] = sums_[j] + counts[j];
      used_before_[j + 1] = used_before_[j] + (counts[j] != 0 ? 1 : 0);
      information_[j + 1] = information_[j] + information(counts[j]);
    }
    total_ = static_cast<double>(sums_[bins]);
  }

  /// The divergence as it is defined, bin by bin; infinite where a bin is lost.
  double loss(std::size_t bins) const {
    if (loses_last(bins)) return std::numeric_limits<double>::infinity();
    const std::span<const std::size_t> used(used_.data(),
                                            static_cast<std::size_t>(used_before_[bins]));
    const auto outliers = static_cast<double>(outliers_of(bins));
    std::vector<double> sums(levels_);
    std::vector<double> sizes(levels_);
    std::vector<std::size_t> level_of(used.size());
    Levels levels(bins, levels_);
    for (std::size_t i = 0; i < used.size(); ++i) {
      level_of[i] = levels.of(used[i]);
      sums[level_of[i]] += static_cast<double>(counts_[used[i]]);
      sizes[level_of[i]] += 1.0;
    }
    double quantized_sum = 0.0;
    for (const std::size_t level : level_of) quantized_sum += sums[level] / sizes[level];
    const double kept = quantized_sum + outliers;
    QUANTA_CHECK(
        std::nearbyint(kept) == total_,
        "HistogramCalibrator: histogram: expected the quantized counts to sum to {}, got {}",
        total_, kept);
    double result = 0.0;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const double count =
          static_cast<double>(counts_[used[i]]) + (used[i] + 1 == bins ? outliers : 0.0);
      const double p = count / total_;
      const double q = sums[level_of[i]] / sizes[level_of[i]] / quantized_sum;
      result += p * std::log(p / q);
    }
    return std::isnan(result) ? std::numeric_limits<double>::infinity() : result;
  }

  /// The same but for rounding, level by level: a level's share of the divergence follows from
  /// sums over its bins, sum(p log p) - sum(p) log q.
  double quick_loss(std::size_t bins) const {
    if (loses_last(bins)) return std::numeric_limits<double>::infinity();
    const std::int64_t outliers = outliers_of(bins);
    const std::int64_t last = counts_[bins - 1];
    const Levels levels(bins, levels_);
    double cross = 0.0;
    std::size_t begin = 0;
    for (std::size_t level = 0; level < levels_ && begin < bins; ++level) {
      const std::size_t end =
          level + 1 == levels_ ? bins : static_cast<std::size_t>(std::ceil(levels.edge(level + 1)));
      const std::int64_t sum = sums_[end] - sums_[begin];
      if (sum != 0) {
        const auto size = static_cast<double>(used_before_[end] - used_before_[begin]);
        const auto counted = static_cast<double>(sum + (end == bins ? outliers : 0));
        cross += counted * std::log(static_cast<double>(sum) / size);
      }
      begin = end;
    }
    const long double own = information_[bins] - information(last) + information(last + outliers);
    return (static_cast<double>(own) - cross) / total_ - std::log(total_) +
           std::log(static_cast<double>(sums_[bins]));
  }

  /// What loss() looks at, at most.
  std::size_t used_bins() const noexcept { return used_.size(); }

  /// By how much loss() and quick_loss() can differ at most: what rounding adds up to over all
  /// terms, none of which is beyond the logarithm of 2^63.
  double rounding() const {
    constexpr double kLargestTerm = 64.0;
    return 4.0 * kLargestTerm * std::numeric_limits<double>::epsilon() *
           static_cast<double>(used_.size() + levels_ + 1);
  }

 private:
  static long double information(std::int64_t count) {
    const auto number = static_cast<long double>(count);
    return count == 0 ? 0.0L : number * std::log(number);
  }
  std::int64_t outliers_of(std::size_t bins) const { return sums_.back() - sums_[bins]; }
  // Whether clipped values land in a bin that the quantized form has nothing in.
  bool loses_last(std::size_t bins) const {
    return sums_[bins] == 0 || (counts_[bins - 1] == 0 && outliers_of(bins) != 0);
  }

  const std::vector<std::int64_t>& counts_;
  std::vector<std::size_t> used_;
  std::size_t levels_;
  // Of the bins before each: values, bins that are not empty, sum(count log count).
  std::vector<std::int64_t> sums_, used_before_;
  std::vector<long double> information_;
  double total_ = 0.0;
};

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
  const std::vector<std::size_t> used = used_bins(histogram.counts);
  check_steps("mse", grid, bins, used.size());
  std::vector<float> centres(bins);
  for (std::size_t i = 0; i < bins; ++i) {
    centres[i] = (histogram.edges[i + 1] + histogram.edges[i]) / 2.0F;
  }
  float best_error = std::numeric_limits<float>::infinity();
  float best = centres[static_cast<std::size_t>(grid.start_bin)];
  for (auto i = static_cast<std::size_t>(grid.start_bin); i < bins;
       i += static_cast<std::size_t>(grid.stride)) {
    double sum = 0.0;
    for (const std::size_t j : used) {
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
  const std::size_t levels = std::size_t{1}
                             << (grid.num_bits.bits - 1 + (grid.is_unsigned ? 1 : 0));
  check_steps("entropy", grid, bins, std::min(levels, bins));
  const EntropySearch search(counts, levels);
  const auto stride = static_cast<std::size_t>(grid.stride);
  std::vector<double> quick;
  for (auto i = static_cast<std::size_t>(grid.start_bin); i <= bins; i += stride) {
    quick.push_back(search.quick_loss(i));
  }
  // Only those that rounding could make the least are compared as the definition has it.
  const double enough = *std::ranges::min_element(quick) + 2.0 * search.rounding();
  // Where many tie that is as much as the definition alone would take.
  const auto close = std::ranges::count_if(
      quick, [&](double each) { return each <= enough && std::isfinite(each); });
  check_steps("entropy", grid, bins, close, search.used_bins());
  double best_loss = std::numeric_limits<double>::infinity();
  std::size_t best = bins;
  for (std::size_t candidate = 0; candidate < quick.size(); ++candidate) {
    if (!(quick[candidate] <= enough)) continue;
    const std::size_t i = static_cast<std::size_t>(grid.start_bin) + candidate * stride;
    const double loss = search.loss(i);
    if (loss <= best_loss) {
      best_loss = loss;
      best = i;
    }
  }
  return histogram.edges[best];
}

}  // namespace quanta::modelopt::detail
