#include "quanta/observers/modelopt/histogram_calibrator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/histogram.h"
#include "quanta/observers/detail/reduce.h"
#include "quanta/observers/modelopt/detail/histogram_search.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/indexing.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

using Counts = Histogram<std::int64_t>;
using quanta::detail::count_between;
using quanta::detail::count_values;
using quanta::detail::kMostBins;
using quanta::detail::Outside;

constexpr std::array<std::string_view, 3> kMethods{"entropy", "mse", "percentile"};

void check_bins(double bins) {
  QUANTA_CHECK(
      bins <= static_cast<double>(kMostBins),
      "HistogramCalibrator: x: expected at most {} bins of the first batch's width, got {}",
      kMostBins, bins);
}

// Infinite values and NaN are refused.
std::vector<float> magnitudes(const Tensor& x, bool skip_zeros) {
  std::vector<float> values = x.detach().to_float_vector();
  for (float& value : values) {
    QUANTA_CHECK(std::isfinite(value), "HistogramCalibrator: x: expected finite values, got {}",
                 value);
    value = std::fabs(value);
  }
  if (skip_zeros) std::erase(values, 0.0F);
  return values;
}

// The magnitudes of a batch, where it is: on a CUDA device their range and their counts are found
// there.
class Batch {
 public:
  Batch(const Tensor& x, bool skip_zeros) {
    if (x.device().is_cpu()) {
      here_ = magnitudes(x, skip_zeros);
      is_empty_ = here_.empty();
      if (is_empty_) return;
      const auto [smallest, largest] = std::minmax_element(here_.begin(), here_.end());
      smallest_ = *smallest;
      largest_ = *largest;
      return;
    }
    if (x.numel() == 0) return;
    const autograd::NoGradGuard no_grad;
    there_ = abs(quanta::detail::dense_floats(x.detach()));
    ValueRange range = quanta::detail::tensor_range(there_);
    QUANTA_CHECK(std::isfinite(range.max[0]),
                 "HistogramCalibrator: x: expected finite values, got {}", range.max[0]);
    if (skip_zeros && range.min[0] == 0.0F) {
      // What is infinite counts nowhere.
      there_ = masked_fill(there_, eq(there_, 0.0), static_cast<double>(HUGE_VALF));
      range = quanta::detail::finite_range(there_);
    }
    is_empty_ = range.min[0] > range.max[0];
    smallest_ = range.min[0];
    largest_ = range.max[0];
  }

  bool is_empty() const noexcept { return is_empty_; }
  float smallest() const noexcept { return smallest_; }
  float largest() const noexcept { return largest_; }

  // In equal bins from 0 to `last`. A range without width counts in the first bin, where torch
  // widens it by 1 on both sides.
  std::vector<std::int64_t> counts(std::size_t bins, float last) const {
    const auto count = [&](const auto& values) {
      return count_values(values, static_cast<std::int64_t>(bins), 0.0F, last, Outside::Skipped);
    };
    return there_.defined() ? count(there_) : count(here_);
  }
  std::vector<std::int64_t> counts(const std::vector<float>& edges) const {
    return there_.defined() ? count_between(there_, edges) : count_between(here_, edges);
  }

 private:
  std::vector<float> here_;
  Tensor there_;
  bool is_empty_ = true;
  float smallest_ = 0.0F;
  float largest_ = 0.0F;
};

// numpy.linspace in float32. The width of bins that are added later is the difference of the first
// two edges, and thousands of them show how these were rounded.
std::vector<float> numpy_edges(float first, float last, std::int64_t bins) {
  std::vector<float> edges;
  const float step = (last - first) / static_cast<float>(bins);
  for (std::int64_t i = 0; i < bins; ++i) edges.push_back(static_cast<float>(i) * step + first);
  edges.push_back(last);
  return edges;
}

// torch.linspace from 0: from both ends to the middle.
std::vector<float> torch_edges(float last, std::int64_t bins) {
  std::vector<float> edges;
  const float step = last / static_cast<float>(bins);
  for (std::int64_t i = 0; i <= bins; ++i) {
    edges.push_back(i < (bins + 1) / 2 ? step * static_cast<float>(i)
                                       : std::fma(-step, static_cast<float>(bins - i), last));
  }
  return edges;
}

// torch.arange(0, largest + width, width), which may give an edge more than bins need.
void grow_torch(Counts& seen, float largest) {
  std::vector<float>& edges = seen.edges;
  const float width = edges[1] - edges[0];
  const float needed = std::ceil(largest / width);
  check_bins(static_cast<double>(needed));
  const std::size_t bins = std::max(seen.counts.size(), static_cast<std::size_t>(needed));
  const double end = static_cast<double>(largest + width);
  const double step = static_cast<double>(width);
  edges.clear();
  for (std::int64_t i = 0; static_cast<double>(i) * step < end; ++i) {
    edges.push_back(static_cast<float>(static_cast<double>(i) * step));
  }
  seen.counts.resize(std::max(seen.counts.size(), std::min(bins, edges.size() - 1)));
}

// numpy.arange(last + width, largest + width, width), whose values are doubles: its steps are the
// difference of its first two values. What it is given is float32 while all edges are, and double
// later: edges are float32 here, so that those of a second growth may be a rounding off.
void grow_numpy(Counts& seen, float largest, bool is_first) {
  std::vector<float>& edges = seen.edges;
  const auto last = static_cast<double>(edges.back());
  double width = static_cast<double>(edges[1]) - static_cast<double>(edges[0]);
  double start = last + width;
  double end = static_cast<double>(largest) + width;
  double second = start + width;
  if (is_first) {
    const float narrow = edges[1] - edges[0];
    const float narrow_start = edges.back() + narrow;
    width = static_cast<double>(narrow);
    start = static_cast<double>(narrow_start);
    end = static_cast<double>(largest + narrow);
    second = static_cast<double>(narrow_start + narrow);
  }
  check_bins((static_cast<double>(largest) - last) / width);
  const auto count = static_cast<std::int64_t>(std::ceil((end - start) / width));
  for (std::int64_t i = 0; i < count; ++i) {
    edges.push_back(static_cast<float>(start + static_cast<double>(i) * (second - start)));
  }
  seen.counts.resize(edges.size() - 1);
}

// `batch` has at most as many bins.
void add_counts(std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) counts[i] += batch[i];
}

// The counts of `other` in bins with these edges, each bin at its centre.
std::vector<std::int64_t> counts_in(const std::vector<float>& edges, const Counts& other) {
  std::vector<std::int64_t> counts(edges.size() - 1);
  for (std::size_t i = 0; i < other.counts.size(); ++i) {
    const float centre = 0.5F * (other.edges[i] + other.edges[i + 1]);
    if (other.counts[i] == 0 || centre < edges.front()) continue;
    const auto above = std::upper_bound(edges.begin(), edges.end(), centre) - edges.begin();
    counts[std::min(static_cast<std::size_t>(above) - 1, counts.size() - 1)] += other.counts[i];
  }
  return counts;
}

NumBits bits_from(const Setting& setting) {
  if (const auto* bits = std::get_if<std::int64_t>(&setting)) return NumBits::integer(*bits);
  const auto* parts = std::get_if<Dims>(&setting);
  QUANTA_CHECK(parts != nullptr && parts->size() == 2,
               "HistogramCalibrator: num_bits: expected a whole number or (E, M), got {}",
               quanta::to_string(setting));
  return NumBits::floating((*parts)[0], (*parts)[1]);
}

Tensor as_tensor(const std::vector<std::int64_t>& counts) {
  const std::vector<float> values(counts.begin(), counts.end());
  return Tensor::from_values(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

HistogramMethod histogram_method_from_name(std::string_view name) {
  if (name == "entropy") return HistogramMethod::Entropy;
  if (name == "mse") return HistogramMethod::Mse;
  QUANTA_CHECK(name == "percentile",
               "HistogramCalibrator: method: expected entropy, mse or percentile, got {}", name);
  return HistogramMethod::Percentile;
}

void describe(HistogramCalibrator::Options& options, SettingFields& fields) {
  const NumBits& bits = options.num_bits;
  Setting num_bits =
      bits.is_float ? Setting(Dims{bits.exponent, bits.mantissa}) : Setting(bits.bits);
  fields("num_bits", num_bits);
  options.num_bits = bits_from(num_bits);
  fields("axis", options.axis);
  fields("unsigned", options.is_unsigned);
  fields("num_bins", options.num_bins);
  fields("skip_zeros", options.skip_zeros);
  bool torch_hist = options.kind == HistogramCalibrator::Kind::Torch;
  fields("torch_hist", torch_hist);
  options.kind = torch_hist ? HistogramCalibrator::Kind::Torch : HistogramCalibrator::Kind::Numpy;
  fields.choice("method", options.method, kMethods);
}

HistogramCalibrator::HistogramCalibrator(Options options) : options_(options) {
  QUANTA_SUPPORTED(options.axis.empty(),
                   "HistogramCalibrator: axis: expected none (histograms are per tensor), got {}",
                   options.axis);
  QUANTA_CHECK(options.num_bins >= 2 && options.num_bins <= kMostBins,
               "HistogramCalibrator: num_bins: expected 2..{}, got {}", kMostBins,
               options.num_bins);
}

void HistogramCalibrator::grow(Counts& seen, float largest) const {
  if (largest <= seen.edges.back()) return;
  if (options_.kind == Kind::Torch) {
    grow_torch(seen, largest);
  } else {
    const auto first_bins = static_cast<std::size_t>(options_.num_bins);
    grow_numpy(seen, largest, seen.counts.size() == first_bins);
  }
}

HistogramCalibrator::Counts HistogramCalibrator::with_bins_for(Counts seen, float smallest,
                                                               float largest) const {
  const bool torch = options_.kind == Kind::Torch;
  if (seen.edges.empty() || (torch && seen.edges.back() == 0.0F)) {
    float first = torch ? 0.0F : smallest;
    float last = largest;
    if (!torch && first == last) {  // as numpy: no range without width
      first -= 0.5F;
      last += 0.5F;
    }
    const auto zeros = std::accumulate(seen.counts.begin(), seen.counts.end(), std::int64_t{0});
    seen.edges =
        torch ? torch_edges(last, options_.num_bins) : numpy_edges(first, last, options_.num_bins);
    seen.counts.assign(static_cast<std::size_t>(options_.num_bins), 0);
    seen.counts.front() = zeros;
  } else {
    grow(seen, largest);
  }
  seen.min = seen.edges.front();
  seen.max = seen.edges.back();
  return seen;
}

Digest HistogramCalibrator::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  const Batch batch(x, options_.skip_zeros);
  if (batch.is_empty()) return {};
  Counts seen;
  {
    const std::lock_guard lock(mutex_);
    seen = seen_;
  }
  seen = with_bins_for(std::move(seen), batch.smallest(), batch.largest());
  std::vector<std::int64_t> counts = options_.kind == Kind::Torch
                                         ? batch.counts(seen.counts.size(), seen.edges.back())
                                         : batch.counts(seen.edges);
  return {.range = {{batch.smallest()}, {batch.largest()}},
          .counts = {std::move(counts)},
          .frame = std::move(seen.edges)};
}

bool HistogramCalibrator::absorb(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  Counts seen = with_bins_for(seen_, digest.range.min[0], digest.range.max[0]);
  if (seen.edges != digest.frame || seen.counts.size() != digest.counts[0].size()) return false;
  add_counts(seen.counts, digest.counts[0]);
  seen_ = std::move(seen);
  return true;
}

bool HistogramCalibrator::join(Digest& digest, const Digest& next) const {
  if (digest.frame != next.frame || digest.counts[0].size() != next.counts[0].size()) return false;
  add_counts(digest.counts[0], next.counts[0]);
  return true;
}

void HistogramCalibrator::move_frame(const ValueRange& range) {
  const std::lock_guard lock(mutex_);
  seen_ = with_bins_for(seen_, range.min[0], range.max[0]);
}

bool HistogramCalibrator::has_data() const {
  const std::lock_guard lock(mutex_);
  return !seen_.edges.empty();
}

void HistogramCalibrator::reset() {
  const std::lock_guard lock(mutex_);
  seen_ = {};
}

void HistogramCalibrator::merge(const Collector& other) {
  require_same_kind(other);
  const auto& source = static_cast<const HistogramCalibrator&>(other);
  Counts theirs;
  {
    const std::lock_guard lock(source.mutex_);
    theirs = source.seen_;
  }
  if (theirs.edges.empty()) return;
  const std::lock_guard lock(mutex_);
  const bool only_zeros = !seen_.edges.empty() && seen_.edges.back() == 0.0F;
  if (seen_.edges.empty() || only_zeros) std::swap(seen_, theirs);
  if (theirs.edges.empty()) return;
  grow(seen_, theirs.edges.back());
  add_counts(seen_.counts, counts_in(seen_.edges, theirs));
  seen_.max = seen_.edges.back();
}

void HistogramCalibrator::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  if (seen_.edges.empty()) return;
  quanta::detail::save_histograms<std::int64_t>(state, prefix, {&seen_, 1}, {});
}

void HistogramCalibrator::load_state(const StateDict& state, const std::string& prefix) {
  Counts loaded;
  if (state.contains(prefix + "histogram")) {
    loaded = quanta::detail::load_histograms<std::int64_t>(state, prefix, {}).front();
    QUANTA_CHECK(!loaded.edges.empty(), "load_state_dict: {}bin_edges: expected edges, got none",
                 prefix);
  }
  const std::lock_guard lock(mutex_);
  seen_ = std::move(loaded);
}

Tensor HistogramCalibrator::compute_amax(HistogramMethod method,
                                         const HistogramSearch& search) const {
  Counts histogram;
  {
    const std::lock_guard lock(mutex_);
    if (seen_.edges.empty()) return {};
    histogram = seen_;
  }
  const detail::SearchGrid grid{options_.num_bits, options_.is_unsigned, search.stride,
                                search.start_bin};
  switch (method) {
    case HistogramMethod::Entropy:
      return Tensor::scalar(static_cast<double>(detail::amax_by_entropy(histogram, grid)));
    case HistogramMethod::Mse:
      return Tensor::scalar(static_cast<double>(detail::amax_by_mse(histogram, grid)));
    case HistogramMethod::Percentile:
      break;
  }
  return Tensor::scalar(
      static_cast<double>(detail::amax_by_percentile(histogram, search.percentile)));
}

Tensor HistogramCalibrator::histogram() const {
  const std::lock_guard lock(mutex_);
  return seen_.counts.empty() ? Tensor() : as_tensor(seen_.counts);
}

Tensor HistogramCalibrator::bin_edges() const {
  const std::lock_guard lock(mutex_);
  if (seen_.edges.empty()) return {};
  return Tensor::from_values(seen_.edges, {static_cast<std::int64_t>(seen_.edges.size())});
}

Tensor calibrate_weight(const Tensor& weight, const WeightCalibration& options) {
  constexpr std::string_view kOp = "calibrate_weight";
  const Tensor largest = reduce_amax(weight, options.axis);
  if (options.method == WeightMethod::Max) return largest;
  QUANTA_CHECK(options.num_bins >= 2 && options.num_bins <= kMostBins,
               "{}: num_bins: expected 2..{}, got {}", kOp, kMostBins, options.num_bins);
  // Kept axes first, so that each channel is a row.
  const Dims kept = wrap_axes(options.axis, weight.dim(), kOp, "axis");
  Dims order = kept;
  for (std::int64_t axis = 0; axis < weight.dim(); ++axis) {
    if (std::find(kept.begin(), kept.end(), axis) == kept.end()) order.push_back(axis);
  }
  const std::vector<float> values = magnitudes(weight.permute(order).contiguous(), false);
  const std::size_t length = values.size() / static_cast<std::size_t>(largest.numel());
  std::vector<float> result;
  for (const float each : largest.to_float_vector()) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(result.size() * length);
    const std::vector<float> channel(begin, begin + static_cast<std::ptrdiff_t>(length));
    Counts histogram;
    histogram.edges = numpy_edges(0.0F, each > 0.0F ? each : 1.0F, options.num_bins);
    histogram.counts = count_between(channel, histogram.edges);
    result.push_back(options.method == WeightMethod::Mse
                         ? detail::amax_by_mse(histogram, {options.num_bits, false, 1, 128})
                         : detail::amax_by_percentile(histogram, options.percentile));
  }
  return Tensor::from_values(result, largest.sizes());
}

}  // namespace quanta::modelopt

namespace quanta::detail {

std::vector<CollectorKind> kinds_of_histogram_calibrator() {
  return {collector_kind<modelopt::HistogramCalibrator>("HistogramCalibrator")};
}

}  // namespace quanta::detail
