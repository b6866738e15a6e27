#include "quanta/observers/modelopt/histogram_calibrator.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "quanta/observers/modelopt/detail/histogram_search.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

constexpr std::int64_t kMaxBins = std::int64_t{1} << 24;

void check_bins(double bins) {
  QUANTA_CHECK(
      bins <= static_cast<double>(kMaxBins),
      "HistogramCalibrator: x: expected at most {} bins of the first batch's width, got {}",
      kMaxBins, bins);
}

// Magnitudes of what is finite or not; NaN is refused.
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

// torch.histc from 0 to `last`.
std::vector<std::int64_t> histc(const std::vector<float>& values, std::size_t bins, float last) {
  std::vector<std::int64_t> counts(bins);
  for (const float value : values) {
    if (value > last) continue;
    // A range without width counts in the first bin, where torch widens it by 1 on both sides.
    const float position = last > 0.0F ? value * static_cast<float>(bins) / last : 0.0F;
    ++counts[std::min(static_cast<std::size_t>(position), bins - 1)];
  }
  return counts;
}

// numpy.histogram with these edges.
std::vector<std::int64_t> histogram_of(const std::vector<float>& values,
                                       const std::vector<float>& edges) {
  std::vector<std::int64_t> counts(edges.size() - 1);
  for (const float value : values) {
    if (value < edges.front() || value > edges.back()) continue;
    const auto above = std::upper_bound(edges.begin(), edges.end(), value) - edges.begin();
    ++counts[std::min(static_cast<std::size_t>(above) - 1, counts.size() - 1)];
  }
  return counts;
}

// numpy.linspace and torch.linspace, but for the order of their roundings.
std::vector<float> edges_between(float first, float last, std::int64_t bins) {
  std::vector<float> edges;
  const double step =
      (static_cast<double>(last) - static_cast<double>(first)) / static_cast<double>(bins);
  for (std::int64_t i = 0; i < bins; ++i) {
    edges.push_back(static_cast<float>(static_cast<double>(first) + step * static_cast<double>(i)));
  }
  edges.push_back(last);
  return edges;
}

void add_counts(std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& old) {
  if (counts.size() < old.size()) counts.resize(old.size());
  for (std::size_t i = 0; i < old.size(); ++i) counts[i] += old[i];
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

HistogramCalibrator::HistogramCalibrator(Options options) : options_(options) {
  QUANTA_SUPPORTED(options.axis.empty(),
                   "HistogramCalibrator: axis: expected none (histograms are per tensor), got {}",
                   options.axis);
  QUANTA_CHECK(options.num_bins >= 2 && options.num_bins <= kMaxBins,
               "HistogramCalibrator: num_bins: expected 2..{}, got {}", kMaxBins, options.num_bins);
}

void HistogramCalibrator::collect(const Tensor& x) {
  QUANTA_CHECK(x.defined() && x.is_floating_point(),
               "HistogramCalibrator: x: expected a floating tensor, got {}",
               x.defined() ? to_string(x.dtype()) : "an undefined one");
  const std::vector<float> values = magnitudes(x, options_.skip_zeros);
  if (values.empty()) return;
  const float largest = *std::max_element(values.begin(), values.end());
  if (options_.kind == Kind::Torch) {
    collect_torch(values, largest);
  } else {
    collect_numpy(values, largest);
  }
}

void HistogramCalibrator::collect_torch(const std::vector<float>& values, float largest) {
  if (edges_.empty() || edges_.back() == 0.0F) {
    const auto bins = static_cast<std::size_t>(options_.num_bins);
    std::vector<std::int64_t> counts = histc(values, bins, largest);
    add_counts(counts, counts_);
    counts_ = std::move(counts);
    edges_ = edges_between(0.0F, largest, options_.num_bins);
    return;
  }
  std::vector<float> edges = edges_;
  std::size_t bins = counts_.size();
  if (largest > edges.back()) {
    const float width = edges[1] - edges[0];
    const float needed = std::ceil(largest / width);
    check_bins(static_cast<double>(needed));
    bins = std::max(bins, static_cast<std::size_t>(needed));
    // torch.arange(0, largest + width, width), which may give an edge more than bins need.
    const double end = static_cast<double>(largest + width);
    const double step = static_cast<double>(width);
    edges.clear();
    for (std::int64_t i = 0; static_cast<double>(i) * step < end; ++i) {
      edges.push_back(static_cast<float>(static_cast<double>(i) * step));
    }
    bins = std::min(bins, edges.size() - 1);
  }
  std::vector<std::int64_t> counts = histc(values, bins, edges.back());
  add_counts(counts, counts_);
  counts_ = std::move(counts);
  edges_ = std::move(edges);
}

void HistogramCalibrator::collect_numpy(const std::vector<float>& values, float largest) {
  std::vector<float> edges = edges_;
  if (edges.empty()) {
    float first = *std::min_element(values.begin(), values.end());
    float last = largest;
    if (first == last) {  // as numpy: no range without width
      first -= 0.5F;
      last += 0.5F;
    }
    edges = edges_between(first, last, options_.num_bins);
  } else if (largest > edges.back()) {
    const float width = edges[1] - edges[0];
    check_bins((static_cast<double>(largest) - static_cast<double>(edges.back())) /
               static_cast<double>(width));
    // numpy.arange(last + width, largest + width, width) in float32: its steps are the difference
    // of the first two values.
    const float start = edges.back() + width;
    const float step = (start + width) - start;
    const auto count = static_cast<std::int64_t>(
        std::ceil(static_cast<double>((largest + width) - start) / static_cast<double>(width)));
    for (std::int64_t i = 0; i < count; ++i) {
      edges.push_back(start + static_cast<float>(i) * step);
    }
  }
  std::vector<std::int64_t> counts = histogram_of(values, edges);
  add_counts(counts, counts_);
  counts_ = std::move(counts);
  edges_ = std::move(edges);
}

void HistogramCalibrator::reset() {
  counts_.clear();
  edges_.clear();
}

std::unique_ptr<Calibrator> HistogramCalibrator::clone() const {
  return std::make_unique<HistogramCalibrator>(*this);
}

Tensor HistogramCalibrator::compute_amax(HistogramMethod method,
                                         const HistogramSearch& search) const {
  if (edges_.empty()) return {};
  const detail::Histogram histogram{counts_, edges_};
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
  return counts_.empty() ? Tensor() : as_tensor(counts_);
}

Tensor HistogramCalibrator::bin_edges() const {
  if (edges_.empty()) return {};
  return Tensor::from_values(edges_, {static_cast<std::int64_t>(edges_.size())});
}

Tensor calibrate_weight(const Tensor& weight, const WeightCalibration& options) {
  constexpr std::string_view kOp = "calibrate_weight";
  const Tensor largest = reduce_amax(weight, options.axis);
  if (options.method == WeightMethod::Max) return largest;
  QUANTA_CHECK(options.num_bins >= 2 && options.num_bins <= kMaxBins,
               "{}: num_bins: expected 2..{}, got {}", kOp, kMaxBins, options.num_bins);
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
    detail::Histogram histogram;
    histogram.edges = edges_between(0.0F, each > 0.0F ? each : 1.0F, options.num_bins);
    histogram.counts = histogram_of(channel, histogram.edges);
    result.push_back(options.method == WeightMethod::Mse
                         ? detail::amax_by_mse(histogram, {options.num_bits, false, 1, 128})
                         : detail::amax_by_percentile(histogram, options.percentile));
  }
  return Tensor::from_values(result, largest.sizes());
}

}  // namespace quanta::modelopt
