#include "quanta/observers/detail/torch_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quanta/observers/cpu/observer_kernels.h"
#include "quanta/observers/detail/cascade_sum.h"
#include "quanta/observers/detail/histogram.h"

namespace quanta::detail {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A range of one value becomes [value - 1, value + 1], the sums in double as in torch.histc.
void widen_single_value(float& low, float& high) {
  if (low != high) return;
  const auto value = static_cast<double>(low);
  low = static_cast<float>(value - 1.0);
  high = static_cast<float>(value + 1.0);
}

// torch.linspace: from the start in the first half, from the end in the second. Product and sum
// are one fused operation because torch's AVX builds contract them; with two roundings a centre can
// fall on the other side of an edge (golden case observer-226).
class Linspace {
 public:
  Linspace(float start, float end, std::int64_t count)
      : start_(start),
        end_(end),
        step_((end - start) / static_cast<float>(count - 1)),
        count_(count) {}
  float operator[](std::int64_t i) const {
    if (i < count_ / 2) return std::fma(step_, static_cast<float>(i), start_);
    return std::fma(-step_, static_cast<float>(count_ - i - 1), end_);
  }

 private:
  float start_, end_, step_;
  std::int64_t count_;
};

// A span of floats, or a tensor.
template <typename Values>
std::vector<float> histc(const Values& x, std::int64_t bins, float low, float high) {
  std::vector<float> histogram(at(bins));
  widen_single_value(low, high);
  const std::vector<std::int64_t> counts = count_values(x, bins, low, high, Outside::Absent);
  if (low == high) {
    // A single value so large that adding 1 changes nothing: in the middle, like any other.
    histogram[at(bins / 2)] = static_cast<float>(counts.front());
    return histogram;
  }
  std::transform(counts.begin(), counts.end(), histogram.begin(),
                 [](std::int64_t n) { return static_cast<float>(n); });
  return histogram;
}

}  // namespace

std::vector<float> torch_histc(std::span<const float> x, std::int64_t bins, float low, float high) {
  return histc(x, bins, low, high);
}
std::vector<float> torch_histc(const Tensor& dense, std::int64_t bins, float low, float high) {
  return histc(dense, bins, low, high);
}

std::vector<float> rescale_histogram(const std::vector<float>& histogram, float old_min,
                                     float old_max, float new_min, float new_max) {
  const auto bins = static_cast<std::int64_t>(histogram.size());
  if (old_min == old_max) {
    const float total = cascade_sum(histogram);
    std::vector<float> result =
        torch_histc(std::span<const float>(&old_min, 1), bins, new_min, new_max);
    for (float& value : result) value *= total;
    return result;
  }

  constexpr std::int64_t kUpsample = 16;
  const std::int64_t parts = bins * kUpsample;
  const float half_part = 0.5F * ((old_max - old_min) / static_cast<float>(parts));
  const Linspace part_begins(old_min, old_max, parts + 1);
  const Linspace edge(new_min, new_max, bins + 1);
  std::vector<float> edges(at(bins + 1));
  for (std::int64_t i = 0; i <= bins; ++i) edges[at(i)] = edge[i];
  std::vector<float> result(at(bins));
  // Bin of a centre: the number of edges that are not above it, less one. Centres grow but for
  // rounding, so the search goes on from the last one.
  std::int64_t not_above = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const float centre = part_begins[part] + half_part;
    while (not_above <= bins && edges[at(not_above)] <= centre) ++not_above;
    while (not_above > 0 && edges[at(not_above - 1)] > centre) --not_above;
    const std::int64_t bin = std::clamp<std::int64_t>(not_above - 1, 0, bins - 1);
    result[at(bin)] += histogram[at(part / kUpsample)] / static_cast<float>(kUpsample);
  }
  return result;
}

namespace {

// The error of keeping a part of the bins. Bins without counts have none: it is not calculated, but
// they have their places in the sum.
class CropError {
 public:
  CropError(const std::vector<float>& histogram, float min, float max, double levels)
      : bin_width_((static_cast<double>(max) - static_cast<double>(min)) /
                   static_cast<double>(histogram.size())),
        levels_(levels) {
    const auto width = static_cast<float>(bin_width_);
    for (std::size_t i = 0; i < histogram.size(); ++i) {
      if (histogram[i] == 0.0F) continue;
      bins_.push_back(i);
      index_.push_back(static_cast<float>(i));
      density_.push_back(histogram[i] / width);
    }
    errors_.resize(index_.size());
    error_of_bin_.resize(histogram.size());
  }

  float operator()(std::int64_t first, std::int64_t last) {
    const double dst_width = bin_width_ * static_cast<double>(last - first + 1) / levels_;
    if (dst_width == 0.0) return 0.0F;
    const cpu::ErrorTerms terms{static_cast<float>(first), static_cast<float>(bin_width_),
                                static_cast<float>(dst_width), static_cast<float>(dst_width / 2.0),
                                static_cast<float>(levels_ - 1.0)};
    cpu::quantization_errors(index_.data(), density_.data(),
                             static_cast<std::int64_t>(index_.size()), terms, errors_.data());
    for (std::size_t i = 0; i < bins_.size(); ++i) error_of_bin_[bins_[i]] = errors_[i];
    return cascade_sum(error_of_bin_);
  }

 private:
  double bin_width_;
  double levels_;
  std::vector<std::size_t> bins_;
  std::vector<float> index_;
  std::vector<float> density_;
  std::vector<float> errors_;
  std::vector<float> error_of_bin_;
};

}  // namespace

BinRange search_bins(const std::vector<float>& histogram, float min, float max, double levels) {
  const auto bins = static_cast<std::int64_t>(histogram.size());
  // torch.cumsum adds in double and stores float32; torch.sum adds in float32, in its own order.
  // The first steps of the search go by the last bit of the two.
  std::vector<float> cumulative(histogram.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    sum += static_cast<double>(histogram[i]);
    cumulative[i] = static_cast<float>(sum);
  }
  const auto total = static_cast<double>(cascade_sum(histogram));

  CropError error(histogram, min, max, levels);
  constexpr double kStep = 1e-5;
  double alpha = 0.0;
  double beta = 1.0;
  BinRange kept{0, bins - 1};
  float best = std::numeric_limits<float>::infinity();
  // Both quantiles only move inwards, so neither search starts over.
  std::int64_t left = 0;
  std::int64_t right = bins - 1;
  while (alpha < beta) {
    const double next_alpha = alpha + kStep;
    const double next_beta = beta - kStep;
    const auto left_mass = static_cast<float>(next_alpha * total);
    const auto right_mass = static_cast<float>(next_beta * total);
    left = std::max(left, kept.first);
    while (left < kept.last && cumulative[at(left)] < left_mass) ++left;
    right = std::min(right, kept.last);
    while (right > kept.first && cumulative[at(right)] > right_mass) --right;
    const std::int64_t l = std::min(left, kept.last);
    const std::int64_t r = std::max(right, kept.first);

    BinRange next = kept;
    if (l - kept.first > kept.last - r) {
      next.first = l;
      alpha = next_alpha;
    } else {
      next.last = r;
      beta = next_beta;
    }
    if (next.first == kept.first && next.last == kept.last) continue;
    const float next_error = error(next.first, next.last);
    if (next_error > best) break;
    best = next_error;
    kept = next;
  }
  return kept;
}

}  // namespace quanta::detail
