#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/aimet/detail/range_math.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet {
namespace {

using Finite = detail::Ends;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Infinite ends when nothing is finite.
Finite finite_ends(const std::vector<float>& values) {
  Finite ends{kInfinity, -kInfinity};
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    ends.min = std::min(ends.min, value);
    ends.max = std::max(ends.max, value);
  }
  return ends;
}

bool has_finite(const Finite& ends) { return ends.min <= ends.max; }

std::vector<float> bin_edges(float low, float high, std::int64_t bins) {
  const float step = (high - low) / static_cast<float>(bins);
  std::vector<float> edges(static_cast<std::size_t>(bins) + 1);
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i] = static_cast<float>(i) * step + low;
  return edges;
}

// torch.histc over [low, high], then what lies outside goes to the first and last bin.
void count_values(const std::vector<float>& values, float low, float high,
                  std::vector<float>& counts) {
  const auto bins = static_cast<float>(counts.size());
  const std::size_t last = counts.size() - 1;
  for (const float value : values) {
    if (value != value) continue;
    if (value < low) {
      counts.front() += 1.0F;
    } else if (value > high) {
      counts.back() += 1.0F;
    } else {
      const auto index = static_cast<std::size_t>((value - low) * bins / (high - low));
      counts[std::min(index, last)] += 1.0F;
    }
  }
}

// The counts of a histogram spread over `bins` bins from `low` to `high`.
std::vector<float> rebin(const AnalyzerHistogram& old, float low, float high) {
  const auto bins = static_cast<std::int64_t>(old.counts.size());
  std::vector<float> counts(old.counts.size());
  const float new_width = (high - low) / static_cast<float>(bins);
  const float old_width = old.edges[1] - old.edges[0];
  const auto bin_of = [&](float value) {
    const float position = (value - low) / new_width;
    return std::clamp(static_cast<std::int64_t>(position), std::int64_t{0}, bins - 1);
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const float begin = old.edges[i];
    const float count = old.counts[i];
    const std::int64_t first = bin_of(begin);
    const float end = low + new_width * (static_cast<float>(first) + 1.0F);
    const float here = std::min(math::round_half_even((end - begin) / old_width * count), count);
    counts[static_cast<std::size_t>(first)] += here;
    if (here < count) {
      const auto next = static_cast<std::size_t>(bin_of(begin + new_width));
      counts[next] += count - here;
    }
  }
  return counts;
}

}  // namespace

HistogramAnalyzer::HistogramAnalyzer(std::string_view name, const Options& options)
    : EncodingAnalyzer(options.shape, options.block_size),
      num_bins_(options.num_bins),
      growth_limit_(options.growth_limit) {
  QUANTA_CHECK(num_bins_ >= 1 && num_bins_ <= (std::int64_t{1} << 24),
               "{}: num_bins: expected 1..2^24, got {}", name, num_bins_);
  QUANTA_CHECK(growth_limit_ >= 1.0, "{}: growth_limit: expected a number >= 1, got {}", name,
               growth_limit_);
}

std::vector<AnalyzerHistogram> HistogramAnalyzer::histograms() const {
  std::vector<AnalyzerHistogram> all;
  for (const Entry& entry : entries_) all.push_back(entry.histogram);
  return all;
}

HistogramAnalyzer::Entry HistogramAnalyzer::first(const std::vector<float>& values) const {
  Finite ends = finite_ends(values);
  if (!has_finite(ends)) ends = {0.0F, 0.0F};
  if (ends.min == ends.max) {
    ends.min -= 0.5F;
    ends.max += 0.5F;
  }
  Entry entry;
  AnalyzerHistogram& histogram = entry.histogram;
  histogram.min = ends.min;
  histogram.max = ends.max;
  histogram.edges = bin_edges(ends.min, ends.max, num_bins_);
  histogram.counts.assign(static_cast<std::size_t>(num_bins_), 0.0F);
  count_values(values, histogram.edges.front(), histogram.edges.back(), histogram.counts);
  const float growth = (ends.max - ends.min) * static_cast<float>(growth_limit_) / 2.0F;
  entry.left = ends.min - growth;
  entry.right = ends.max + growth;
  return entry;
}

void HistogramAnalyzer::merge(Entry& entry, const std::vector<float>& values) const {
  const Finite ends = finite_ends(values);
  if (!has_finite(ends)) return;
  AnalyzerHistogram& histogram = entry.histogram;
  const float low = std::min(std::max(ends.min, entry.left), histogram.edges.front());
  const float high = std::min(std::max(ends.max, histogram.edges.back()), entry.right);
  if (low != histogram.min || high != histogram.max) {
    histogram.counts = rebin(histogram, low, high);
  }
  count_values(values, low, high, histogram.counts);
  histogram.edges = bin_edges(low, high, num_bins_);
  histogram.min = low;
  histogram.max = high;
}

void HistogramAnalyzer::update(const Tensor& x) {
  const detail::EntryElements elements(name(), x, shape_, block_size_);
  if (elements.empty()) return;
  std::vector<std::vector<float>> values(elements.entries());
  elements.for_each([&](std::size_t entry, float value) { values[entry].push_back(value); });
  if (entries_.empty()) {
    for (const std::vector<float>& one : values) entries_.push_back(first(one));
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) merge(entries_[i], values[i]);
}

Range HistogramAnalyzer::range_of_data(std::int64_t num_steps, bool symmetric) const {
  std::vector<float> mins;
  std::vector<float> maxs;
  for (const Entry& entry : entries_) {
    const Ends ends = ends_of(entry.histogram, num_steps, symmetric);
    mins.push_back(ends.min);
    maxs.push_back(ends.max);
  }
  return {Tensor::from_values(mins, shape_), Tensor::from_values(maxs, shape_)};
}

// Percentile -------------------------------------------------------------------------------------

PercentileAnalyzer::PercentileAnalyzer(const Options& options)
    : HistogramAnalyzer("PercentileAnalyzer", options.histogram) {
  set_percentile(options.percentile);
}

void PercentileAnalyzer::set_percentile(double percentile) {
  QUANTA_CHECK(percentile >= 50.0 && percentile <= 100.0,
               "PercentileAnalyzer: percentile: expected 50..100, got {}", percentile);
  percentile_ = percentile;
}

std::unique_ptr<EncodingAnalyzer> PercentileAnalyzer::clone() const {
  return std::make_unique<PercentileAnalyzer>(*this);
}

HistogramAnalyzer::Ends PercentileAnalyzer::ends_of(const AnalyzerHistogram& histogram,
                                                    std::int64_t num_steps, bool symmetric) const {
  Ends ends{histogram.edges.front(), histogram.edges.back()};
  if (percentile_ < 100.0) {
    std::vector<float> sums;
    float sum = 0.0F;
    for (const float count : histogram.counts) sums.push_back(sum += count);
    const auto edge_at = [&](float share) {
      const auto found =
          std::find_if(sums.begin(), sums.end(), [share](float below) { return below >= share; });
      return histogram.edges[static_cast<std::size_t>(found - sums.begin())];
    };
    ends.max = edge_at(sum * static_cast<float>(percentile_) / 100.0F);
    ends.min = edge_at(sum * static_cast<float>(1.0 - percentile_ / 100.0));
  }
  const detail::Ends wide =
      detail::widen({ends.min, ends.max}, num_steps, symmetric, detail::TwoBitRule::None);
  return {wide.min, wide.max};
}

}  // namespace quanta::aimet
