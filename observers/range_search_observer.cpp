#include "quanta/observers/range_search_observer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/observer_factory.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/modelopt/detail/histogram_search.h"
#include "quanta/observers/mse_observer.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using Range = HistogramObserver::Range;

constexpr std::array<std::string_view, 3> kMethods{"mse", "percentile", "entropy"};
constexpr std::int64_t kLeastBins = 256;
constexpr int kSteps = 100;

HistogramObserverOptions histogram_options(const RangeSearchObserverOptions& options) {
  return {.bins = options.bins,
          .dtype = options.dtype,
          .qscheme = options.qscheme,
          .reduce_range = options.reduce_range,
          .quant_min = options.quant_min,
          .quant_max = options.quant_max,
          .eps = options.eps};
}

bool is_symmetric(const QParamsRule& rule) { return rule.qscheme == QScheme::PerTensorSymmetric; }

// Bins of equal width.
struct Bins {
  std::span<const float> counts;
  float min, max;

  float width() const { return (max - min) / static_cast<float>(counts.size()); }
  float edge(std::size_t i) const {
    return i == counts.size() ? max : min + width() * static_cast<float>(i);
  }
  float centre(std::size_t i) const { return min + width() * (static_cast<float>(i) + 0.5F); }
};

double squared_error(const Bins& bins, const Range& range, const QParamsRule& rule) {
  const ObservedScale found = calculate_qparams(range.min, range.max, rule);
  const auto scale = static_cast<double>(found.scale);
  const auto zero_point = static_cast<double>(found.zero_point);
  const auto lowest = (static_cast<double>(rule.range.min) - zero_point) * scale;
  const auto highest = (static_cast<double>(rule.range.max) - zero_point) * scale;
  double sum = 0.0;
  for (std::size_t i = 0; i < bins.counts.size(); ++i) {
    if (bins.counts[i] == 0.0F) continue;
    const auto x = static_cast<double>(bins.centre(i));
    const double error = std::clamp(std::nearbyint(x / scale) * scale, lowest, highest) - x;
    sum += static_cast<double>(bins.counts[i]) * error * error;
  }
  return sum;
}

Range least_squares(const Bins& bins, const QParamsRule& rule) {
  Range best{std::min(bins.min, 0.0F), std::max(bins.max, 0.0F)};
  const Range whole = best;
  double least = squared_error(bins, best, rule);
  const auto search = [&](bool lower, bool upper) {
    bool moved = false;
    for (int i = kSteps; i > 0; --i) {
      const float share = static_cast<float>(i) / static_cast<float>(kSteps);
      Range tried = best;
      if (lower) tried.min = whole.min * share;
      if (upper) tried.max = whole.max * share;
      const double error = squared_error(bins, tried, rule);
      if (error < least) {
        least = error;
        best = tried;
        moved = true;
      }
    }
    return moved;
  };
  if (is_symmetric(rule)) {
    search(true, true);
    return best;
  }
  constexpr int kMostRounds = 5;
  for (int round = 0; round < kMostRounds; ++round) {
    const bool upper_moved = whole.max > 0.0F && search(false, true);
    const bool lower_moved = whole.min < 0.0F && search(true, false);
    if (!upper_moved && !lower_moved) break;
  }
  return best;
}

// Counts of magnitudes in as many bins.
modelopt::detail::Counts magnitudes(const Bins& bins) {
  const float largest = std::max(-bins.min, bins.max);
  const std::size_t count = bins.counts.size();
  modelopt::detail::Counts folded{.counts = std::vector<std::int64_t>(count), .edges = {}};
  const float width = largest / static_cast<float>(count);
  for (std::size_t i = 0; i <= count; ++i) folded.edges.push_back(width * static_cast<float>(i));
  folded.min = 0.0F;
  folded.max = largest;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(std::abs(bins.centre(i)) / width);
    folded.counts[std::min(at, count - 1)] += std::llround(bins.counts[i]);
  }
  return folded;
}

// No further than what was seen.
Range cut_at(const Bins& bins, float magnitude) {
  return {std::max(bins.min, -magnitude), std::min(bins.max, magnitude)};
}

Range percentile_range(const Bins& bins, const QParamsRule& rule, double percentile) {
  if (is_symmetric(rule)) {
    const modelopt::detail::Counts folded = magnitudes(bins);
    const double total = [&] {
      double sum = 0.0;
      for (const std::int64_t n : folded.counts) sum += static_cast<double>(n);
      return sum;
    }();
    double within = 0.0;
    std::size_t i = 0;
    while (i < folded.counts.size() && within < total * percentile / 100.0) {
      within += static_cast<double>(folded.counts[i++]);
    }
    return cut_at(bins, folded.edges[i]);
  }
  double total = 0.0;
  for (const float n : bins.counts) total += static_cast<double>(n);
  const double outside = total * (1.0 - percentile / 100.0) / 2.0;
  std::size_t first = 0;
  std::size_t last = bins.counts.size();
  for (double below = 0.0; first + 1 < last; ++first) {
    below += static_cast<double>(bins.counts[first]);
    if (below > outside) break;
  }
  for (double above = 0.0; last > first + 1; --last) {
    above += static_cast<double>(bins.counts[last - 1]);
    if (above > outside) break;
  }
  return {bins.edge(first), bins.edge(last)};
}

Range entropy_range(const Bins& bins, const QParamsRule& rule) {
  const auto codes = static_cast<double>(rule.range.max - rule.range.min + 1);
  // All codes for one side, where the scheme allows that.
  const bool is_one_sided = !is_symmetric(rule) && (bins.min >= 0.0F || bins.max <= 0.0F);
  const modelopt::detail::SearchGrid grid{
      .num_bits = NumBits::integer(std::lround(std::log2(codes))), .is_unsigned = is_one_sided};
  return cut_at(bins, modelopt::detail::amax_by_entropy(magnitudes(bins), grid));
}

// What a QConfig's observer was made with, as options of another class. Settings that the other class
// does not have are left out.
template <typename Options>
Options options_like(std::string_view name, const Observer& observer) {
  Settings known;
  for (const auto& [field, value] : observer.settings()) {
    if (default_fields<Options>().settings().find(field) != nullptr && field != "bins") {
      known.set(field, value);
    }
  }
  return options_from<Options>(std::string(name), known);
}

}  // namespace

RangeSearch range_search_from_name(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name);
  QUANTA_CHECK(found != kMethods.end(),
               "range_search_from_name: name: expected one of {}, got '{}'",
               fmt::join(kMethods, ", "), name);
  return static_cast<RangeSearch>(found - kMethods.begin());
}

void describe(RangeSearchObserverOptions& options, SettingFields& fields) {
  fields.choice("method", options.method, kMethods);
  fields("percentile", options.percentile);
  fields("bins", options.bins);
  fields("dtype", options.dtype);
  fields("qscheme", options.qscheme);
  fields("reduce_range", options.reduce_range);
  fields("quant_min", options.quant_min);
  fields("quant_max", options.quant_max);
  fields("eps", options.eps);
}

RangeSearchObserver::RangeSearchObserver(const Options& options)
    : HistogramObserver(histogram_options(options)), options_(options) {
  QUANTA_CHECK(options.bins >= kLeastBins,
               "RangeSearchObserver: bins: expected at least {}, got {}", kLeastBins, options.bins);
  QUANTA_CHECK(options.percentile > 0.0 && options.percentile <= 100.0,
               "RangeSearchObserver: percentile: expected a number in (0, 100], got {}",
               options.percentile);
}

ObserverFactory RangeSearchObserver::with_args(const Options& options) {
  return detail::observer_factory<RangeSearchObserver>(options);
}

RangeSearchObserver::Range RangeSearchObserver::search_range() const {
  const Histogram<float> seen = counted();
  QUANTA_CHECK(seen.has_data(), "{}: search_range: expected data, nothing was observed", name());
  if (seen.min == seen.max) return {seen.min, seen.max};
  const Bins bins{seen.counts, seen.min, seen.max};
  switch (options_.method) {
    case RangeSearch::Mse:
      return least_squares(bins, rule());
    case RangeSearch::Percentile:
      return percentile_range(bins, rule(), options_.percentile);
    case RangeSearch::Entropy:
      return entropy_range(bins, rule());
  }
  throw InternalError("RangeSearchObserver: method: unknown");
}

ObservedQParams RangeSearchObserver::calculate_qparams() const {
  if (!has_data()) return HistogramObserver::calculate_qparams();
  const Range range = search_range();
  return qparams(std::array{range.min}, std::array{range.max}, rule());
}

QConfig qconfig_with_range_search(std::string_view method, const QConfig& base,
                                  const RangeSearchScope& scope) {
  constexpr std::string_view kOp = "qconfig_with_range_search";
  const auto made = [&](const ObserverFactory& factory, std::string_view what) {
    std::shared_ptr<Observer> observer = factory ? factory() : nullptr;
    QUANTA_SUPPORTED(dynamic_cast<const UniformObserver*>(observer.get()) != nullptr &&
                         !observer->is_dynamic() && !is_floating_point(observer->dtype()) &&
                         observer->qscheme() != QScheme::PerChannelAffineFloatQParams,
                     "{}: base.{}: expected an observer of value ranges with codes, got {}", kOp,
                     what, factory ? factory.name : std::string("none"));
    return observer;
  };
  QConfig found = base;
  const std::shared_ptr<Observer> activation = made(base.activation, "activation");
  QUANTA_SUPPORTED(!is_per_channel(activation->qscheme()),
                   "{}: base.activation: expected a per-tensor scheme, got {}", kOp,
                   base.activation.name);
  auto options = options_like<RangeSearchObserverOptions>("RangeSearchObserver", *activation);
  options.method = range_search_from_name(method);
  options.percentile = scope.percentile;
  found.activation = RangeSearchObserver::with_args(options);
  if (scope.weights) {
    const std::shared_ptr<Observer> weight = made(base.weight, "weight");
    auto searched =
        options_like<AffineQuantizedMSEObserverOptions>("AffineQuantizedMSEObserver", *weight);
    searched.ch_axis = weight->ch_axis();
    found.weight = AffineQuantizedMSEObserver::with_args(searched);
  }
  return found;
}

namespace detail {

std::vector<CollectorKind> kinds_of_range_search_observer() {
  return {collector_kind<RangeSearchObserver>("RangeSearchObserver")};
}

}  // namespace detail
}  // namespace quanta
