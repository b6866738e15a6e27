#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/aimet/detail/range_math.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/bin_math.h"
#include "quanta/observers/detail/histogram.h"
#include "quanta/observers/detail/reduce.h"
#include "quanta/observers/detail/state.h"
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

// The elements of a batch by entries, where it is: on a CUDA device their ranges and their counts
// are found there.
class Batch {
 public:
  explicit Batch(quanta::detail::EntryElements elements, bool is_here)
      : elements_(std::move(elements)) {
    if (!is_here) {
      ends_ = elements_.finite_range();
      return;
    }
    values_.resize(elements_.entries());
    elements_.for_each([&](std::size_t entry, float value) { values_[entry].push_back(value); });
    for (const std::vector<float>& one : values_) {
      const Finite ends = finite_ends(one);
      ends_.min.push_back(ends.min);
      ends_.max.push_back(ends.max);
    }
  }

  std::size_t entries() const noexcept { return elements_.entries(); }
  const ValueRange& range() const noexcept { return ends_; }
  Finite ends(std::size_t entry) const { return {ends_.min[entry], ends_.max[entry]}; }

  // The counts of all entries in bins of their ranges. What lies outside goes to the first and last
  // bin.
  std::vector<std::vector<std::int64_t>> counts(std::int64_t bins, const ValueRange& ranges) const {
    std::vector<std::vector<std::int64_t>> counts;
    if (!values_.empty()) {
      for (std::size_t i = 0; i < values_.size(); ++i) {
        counts.push_back(quanta::detail::count_values(
            values_[i], bins, ranges.min[i], ranges.max[i], quanta::detail::Outside::AtEnds));
      }
      return counts;
    }
    const std::vector<std::int64_t> all = elements_.counts(bins, ranges);
    for (auto from = all.begin(); from != all.end(); from += bins) {
      counts.emplace_back(from, from + bins);
    }
    return counts;
  }

 private:
  quanta::detail::EntryElements elements_;
  std::vector<std::vector<float>> values_;  // of a batch on the CPU
  ValueRange ends_;
};

// The ranges that are counted in, one for each entry.
template <typename Entries>
ValueRange counted_ranges(const Entries& entries, bool is_first) {
  ValueRange ranges;
  for (const auto& entry : entries) {
    const Histogram<float>& histogram = entry.histogram;
    ranges.min.push_back(is_first ? histogram.edges.front() : histogram.min);
    ranges.max.push_back(is_first ? histogram.edges.back() : histogram.max);
  }
  return ranges;
}

// All that says where values of a batch are counted, and those of the next one.
template <typename Entries>
std::vector<float> frame_of(const Entries& entries, const ValueRange& counted) {
  std::vector<float> frame;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Histogram<float>& histogram = entries[i].histogram;
    for (const float value :
         {histogram.min, histogram.max, histogram.edges.front(), histogram.edges.back(),
          entries[i].left, entries[i].right, counted.min[i], counted.max[i]}) {
      frame.push_back(value);
    }
  }
  return frame;
}

// NaN, which limits of a range too large to double may be, is like itself.
bool same_bits(const std::vector<float>& lhs, const std::vector<float>& rhs) {
  return std::equal(lhs.begin(), lhs.end(), rhs.begin(), rhs.end(), [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  });
}

// The counts of a histogram spread over `bins` bins from `low` to `high`.
std::vector<float> rebin(const Histogram<float>& old, float low, float high) {
  const auto bins = static_cast<std::int64_t>(old.counts.size());
  std::vector<float> counts(old.counts.size());
  const float new_width = (high - low) / static_cast<float>(bins);
  const float old_width = old.edges[1] - old.edges[0];
  const auto bin_of = [&](float value) {
    return quanta::detail::bin_at((value - low) / new_width, bins);
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

void describe(HistogramAnalyzerOptions& options, SettingFields& fields) {
  fields("shape", options.shape);
  fields("block_size", options.block_size);
  fields("num_bins", options.num_bins);
  fields("growth_limit", options.growth_limit);
}

HistogramAnalyzer::HistogramAnalyzer(std::string_view name, const Options& options)
    : EncodingAnalyzer(options.shape, options.block_size),
      num_bins_(options.num_bins),
      growth_limit_(options.growth_limit) {
  QUANTA_CHECK(num_bins_ >= 1 && num_bins_ <= quanta::detail::kMostBins,
               "{}: num_bins: expected 1..2^24, got {}", name, num_bins_);
  QUANTA_CHECK(growth_limit_ >= 1.0, "{}: growth_limit: expected a number >= 1, got {}", name,
               growth_limit_);
}

bool HistogramAnalyzer::has_data() const {
  const std::lock_guard lock(mutex_);
  return !entries_.empty();
}

void HistogramAnalyzer::reset() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

std::vector<Histogram<float>> HistogramAnalyzer::histograms() const {
  const std::lock_guard lock(mutex_);
  std::vector<Histogram<float>> all;
  for (const Entry& entry : entries_) all.push_back(entry.histogram);
  return all;
}

HistogramAnalyzer::Entry HistogramAnalyzer::first(Ends ends) const {
  if (!has_finite({ends.min, ends.max})) ends = {0.0F, 0.0F};
  Entry entry;
  Histogram<float>& histogram = entry.histogram;
  histogram.min = ends.min;
  histogram.max = ends.max;
  // Only the bins get a width.
  if (ends.min == ends.max) {
    ends.min -= 0.5F;
    ends.max += 0.5F;
  }
  histogram.edges = bin_edges(ends.min, ends.max, num_bins_);
  histogram.counts.assign(static_cast<std::size_t>(num_bins_), 0.0F);
  // From the edges: the last one is not `max` to the last bit.
  const float first = histogram.edges.front();
  const float last = histogram.edges.back();
  const float growth = (last - first) * static_cast<float>(growth_limit_) / 2.0F;
  entry.left = first - growth;
  entry.right = last + growth;
  return entry;
}

void HistogramAnalyzer::widen(Histogram<float>& histogram, float low, float high) const {
  if (low != histogram.min || high != histogram.max) {
    histogram.counts = rebin(histogram, low, high);
  }
  histogram.edges = bin_edges(low, high, num_bins_);
  histogram.min = low;
  histogram.max = high;
}

void HistogramAnalyzer::grow(Entry& entry, const Ends& ends) const {
  Histogram<float>& histogram = entry.histogram;
  const float low = std::min(std::max(ends.min, entry.left), histogram.edges.front());
  const float high = std::min(std::max(ends.max, histogram.edges.back()), entry.right);
  widen(histogram, low, high);
}

void HistogramAnalyzer::add(Entry& entry, const Entry& other) const {
  Histogram<float> theirs = other.histogram;
  for (Histogram<float>* one : {&entry.histogram, &theirs}) {
    if (one->min == one->max) {
      one->min = one->edges.front();
      one->max = one->edges.back();
    }
  }
  const float low = std::min(entry.histogram.min, theirs.min);
  const float high = std::max(entry.histogram.max, theirs.max);
  widen(entry.histogram, low, high);
  widen(theirs, low, high);
  for (std::size_t i = 0; i < theirs.counts.size(); ++i) {
    entry.histogram.counts[i] += theirs.counts[i];
  }
  entry.left = std::min(entry.left, other.left);
  entry.right = std::max(entry.right, other.right);
}

std::vector<HistogramAnalyzer::Entry> HistogramAnalyzer::with_bins_for(
    std::vector<Entry> entries, const ValueRange& batch) const {
  const bool is_first = entries.empty();
  for (std::size_t i = 0; i < batch.min.size(); ++i) {
    const Ends ends{batch.min[i], batch.max[i]};
    if (is_first) {
      entries.push_back(first(ends));
    } else if (has_finite({ends.min, ends.max})) {
      grow(entries[i], ends);
    }
  }
  return entries;
}

Digest HistogramAnalyzer::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  if (x.numel() == 0) return {};
  const Batch batch({name(), x, shape_, block_size_}, x.device().is_cpu());
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
  }
  const bool is_first = entries.empty();
  Digest found{.range = batch.range()};
  entries = with_bins_for(std::move(entries), found.range);
  const ValueRange counted = counted_ranges(entries, is_first);
  found.counts = batch.counts(num_bins_, counted);
  found.frame = frame_of(entries, counted);
  // Batches without a finite number do not count, but for the first one.
  for (std::size_t i = 0; i < found.counts.size() && !is_first; ++i) {
    if (!has_finite(batch.ends(i))) std::fill(found.counts[i].begin(), found.counts[i].end(), 0);
  }
  return found;
}

bool HistogramAnalyzer::absorb(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  const bool is_first = entries_.empty();
  std::vector<Entry> entries = with_bins_for(entries_, digest.range);
  if (!same_bits(frame_of(entries, counted_ranges(entries, is_first)), digest.frame)) return false;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    quanta::detail::add_counts(entries[i].histogram.counts, digest.counts[i]);
  }
  entries_ = std::move(entries);
  return true;
}

// Counts grow by 1 as often as there are values, whichever digest these come from.
bool HistogramAnalyzer::join(Digest& digest, const Digest& next) const {
  if (!same_bits(digest.frame, next.frame)) return false;
  for (std::size_t i = 0; i < digest.counts.size(); ++i) {
    for (std::size_t bin = 0; bin < digest.counts[i].size(); ++bin) {
      digest.counts[i][bin] += next.counts[i][bin];
    }
  }
  return true;
}

void HistogramAnalyzer::move_frame(const ValueRange& range) {
  const std::lock_guard lock(mutex_);
  entries_ = with_bins_for(std::move(entries_), range);
}

void HistogramAnalyzer::merge(const Collector& other) {
  require_same_kind(other);
  const auto& source = static_cast<const HistogramAnalyzer&>(other);
  std::vector<Entry> theirs;
  {
    const std::lock_guard lock(source.mutex_);
    theirs = source.entries_;
  }
  if (theirs.empty()) return;
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) {
    entries_ = std::move(theirs);
    return;
  }
  for (std::size_t i = 0; i < theirs.size(); ++i) add(entries_[i], theirs[i]);
}

Range HistogramAnalyzer::range_of_data(std::int64_t num_steps, bool symmetric) const {
  ValueRange range;
  for (const Histogram<float>& histogram : histograms()) {
    const Ends ends = ends_of(histogram, num_steps, symmetric);
    range.min.push_back(ends.min);
    range.max.push_back(ends.max);
  }
  return {Tensor::from_values(range.min, shape_), Tensor::from_values(range.max, shape_)};
}

void HistogramAnalyzer::save_state(StateDict& state, const std::string& prefix) const {
  const std::vector<Histogram<float>> all = histograms();
  if (all.empty()) return;
  quanta::detail::save_histograms<float>(state, prefix, all, shape_);
  std::vector<float> left;
  std::vector<float> right;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    left.push_back(entry.left);
    right.push_back(entry.right);
  }
  state.set(prefix + "growth_min", Tensor::from_values(left, shape_));
  state.set(prefix + "growth_max", Tensor::from_values(right, shape_));
}

void HistogramAnalyzer::load_state(const StateDict& state, const std::string& prefix) {
  std::vector<Entry> loaded;
  if (state.contains(prefix + "histogram")) {
    const std::vector<Histogram<float>> all =
        quanta::detail::load_histograms<float>(state, prefix, shape_);
    const auto limits = [&](const char* name) {
      const Tensor values = quanta::detail::tensor_state(state, prefix + name);
      QUANTA_CHECK(values.sizes() == shape_, "load_state_dict: {}{}: expected the sizes {}, got {}",
                   prefix, name, shape_, values.sizes());
      return values.to_float_vector();
    };
    const std::vector<float> left = limits("growth_min");
    const std::vector<float> right = limits("growth_max");
    const auto bins = static_cast<std::size_t>(num_bins_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Histogram<float>& one = all[i];
      QUANTA_CHECK(one.counts.size() == bins && one.edges.size() == bins + 1 && one.has_data(),
                   "load_state_dict: {}histogram: expected {} bins with edges and a range, got {} "
                   "and {} edges",
                   prefix, bins, one.counts.size(), one.edges.size());
      QUANTA_CHECK(left[i] <= one.min && right[i] >= one.max,
                   "load_state_dict: {}growth_min, growth_max: expected limits around {}..{}, got "
                   "{}, {}",
                   prefix, one.min, one.max, left[i], right[i]);
      loaded.push_back({one, left[i], right[i]});
    }
  }
  const std::lock_guard lock(mutex_);
  entries_ = std::move(loaded);
}

// Percentile -------------------------------------------------------------------------------------

void describe(PercentileAnalyzerOptions& options, SettingFields& fields) {
  describe(options.histogram, fields);
  fields("percentile", options.percentile);
}

PercentileAnalyzer::PercentileAnalyzer(const Options& options)
    : HistogramAnalyzer("PercentileAnalyzer", options.histogram), options_(options) {
  set_percentile(options.percentile);
}

std::shared_ptr<EncodingAnalyzer> PercentileAnalyzer::of_shape(const Dims& shape,
                                                               const Dims& block_size) const {
  Options options = options_;
  options.histogram.shape = shape;
  options.histogram.block_size = block_size;
  return std::make_shared<PercentileAnalyzer>(options);
}

void PercentileAnalyzer::set_percentile(double percentile) {
  QUANTA_CHECK(percentile >= 50.0 && percentile <= 100.0,
               "PercentileAnalyzer: percentile: expected 50..100, got {}", percentile);
  options_.percentile = percentile;
}

HistogramAnalyzer::Ends PercentileAnalyzer::ends_of(const Histogram<float>& histogram,
                                                    std::int64_t num_steps, bool symmetric) const {
  Ends ends{histogram.edges.front(), histogram.edges.back()};
  if (options_.percentile < 100.0) {
    std::vector<float> sums;
    float sum = 0.0F;
    for (const float count : histogram.counts) sums.push_back(sum += count);
    const auto edge_at = [&](float share) {
      const auto found =
          std::find_if(sums.begin(), sums.end(), [share](float below) { return below >= share; });
      return histogram.edges[static_cast<std::size_t>(found - sums.begin())];
    };
    ends.max = edge_at(sum * static_cast<float>(options_.percentile) / 100.0F);
    ends.min = edge_at(sum * static_cast<float>(1.0 - options_.percentile / 100.0));
  }
  const detail::Ends wide =
      detail::widen({ends.min, ends.max}, num_steps, symmetric, detail::TwoBitRule::None);
  return {wide.min, wide.max};
}

}  // namespace quanta::aimet

namespace quanta::detail {

std::vector<CollectorKind> kinds_of_histogram_analyzer() {
  return {collector_kind<aimet::PercentileAnalyzer>("PercentileAnalyzer")};
}

}  // namespace quanta::detail
