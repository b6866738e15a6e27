#include "quanta/observers/histogram_observer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/histogram.h"
#include "quanta/observers/detail/observer_factory.h"
#include "quanta/observers/detail/reduce.h"
#include "quanta/observers/detail/state.h"
#include "quanta/observers/detail/torch_histogram.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor finite_values(const Tensor& dense) {
  const auto* x = dense.data<float>();
  std::vector<float> kept;
  std::copy_if(x, x + dense.numel(), std::back_inserter(kept),
               [](float value) { return std::fabs(value) != kInfinity; });
  return Tensor::from_values(kept, {static_cast<std::int64_t>(kept.size())});
}

}  // namespace

void describe(HistogramObserverOptions& options, SettingFields& fields) {
  fields("bins", options.bins);
  describe_uniform(options, fields);
}

Histogram<float> HistogramObserver::no_counts() const {
  return {.counts = std::vector<float>(static_cast<std::size_t>(options_.bins)), .edges = {}};
}

HistogramObserver::HistogramObserver(const Options& options)
    : UniformObserver("HistogramObserver", uniform_settings(options)), options_(options) {
  QUANTA_CHECK(options.bins >= 1 && options.bins <= detail::kMostBins,
               "HistogramObserver: bins: expected 1..{}, got {}", detail::kMostBins, options.bins);
  QUANTA_SUPPORTED(!is_per_channel(options.qscheme),
                   "HistogramObserver: qscheme: expected PerTensorAffine or PerTensorSymmetric, "
                   "got {}",
                   options.qscheme);
  QUANTA_SUPPORTED(!is_floating_point(options.dtype),
                   "HistogramObserver: dtype: expected an integer type, got {}", options.dtype);
  QUANTA_SUPPORTED(!options.is_dynamic,
                   "HistogramObserver: is_dynamic: expected false, only MinMaxObserver, "
                   "MovingAverageMinMaxObserver and PlaceholderObserver can be dynamic");
  seen_ = no_counts();
}

ObserverFactory HistogramObserver::with_args(const Options& options) {
  return detail::observer_factory<HistogramObserver>(options);
}

// `batch` counts over a range that holds that of the total.
void HistogramObserver::add(Histogram<float>& total, const Histogram<float>& batch) {
  if (!total.has_data()) {
    total = batch;
    return;
  }
  if (batch.min != total.min || batch.max != total.max) {
    total.counts =
        detail::rescale_histogram(total.counts, total.min, total.max, batch.min, batch.max);
    total.min = batch.min;
    total.max = batch.max;
  }
  for (std::size_t i = 0; i < total.counts.size(); ++i) total.counts[i] += batch.counts[i];
}

// The range of a total once values of another one are counted in it.
ValueRange HistogramObserver::joined(const ValueRange& range) const {
  return {{std::min(seen_.min, range.min[0])}, {std::max(seen_.max, range.max[0])}};
}

Digest HistogramObserver::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  if (x.numel() == 0) return {};
  Tensor values = detail::dense_floats(x);
  ValueRange range = detail::tensor_range(values);
  QUANTA_CHECK(!std::isnan(range.min[0]),
               "{}: x: expected numbers, got NaN; this batch was left out", name());
  if (range.min[0] == -kInfinity || range.max[0] == kInfinity) {
    range = detail::finite_range(values);
    if (range.min[0] > range.max[0]) return {};
    // On a device they stay among the values, and lie outside of what is counted.
    if (values.device().is_cpu()) values = finite_values(values);
  }
  ValueRange within;
  {
    const std::lock_guard lock(mutex_);
    within = joined(range);
  }
  std::vector<float> counts =
      detail::torch_histc(values, options_.bins, within.min[0], within.max[0]);
  return {.range = std::move(range),
          .values = std::move(counts),
          .frame = {within.min[0], within.max[0]}};
}

bool HistogramObserver::absorb(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  const ValueRange needed = joined(digest.range);
  if (needed.min[0] != digest.frame[0] || needed.max[0] != digest.frame[1]) return false;
  add(seen_, {digest.values, {}, needed.min[0], needed.max[0]});
  return true;
}

void HistogramObserver::move_frame(const ValueRange& range) {
  Histogram<float> nothing = no_counts();
  const std::lock_guard lock(mutex_);
  const ValueRange needed = joined(range);
  nothing.min = needed.min[0];
  nothing.max = needed.max[0];
  add(seen_, nothing);
}

HistogramObserver::Range HistogramObserver::search(const Histogram<float>& histogram) const {
  // torch takes the bits of the dtype's storage: 8 for quint4x2, whatever the range in use.
  const double levels = std::exp2(static_cast<double>(8 * item_size(dtype())));
  const detail::BinRange kept =
      detail::search_bins(histogram.counts, histogram.min, histogram.max, levels);
  const float bin_width = (histogram.max - histogram.min) / static_cast<float>(options_.bins);
  return {histogram.min + bin_width * static_cast<float>(kept.first),
          histogram.min + bin_width * static_cast<float>(kept.last + 1)};
}

HistogramObserver::Range HistogramObserver::search_range() const {
  const Histogram<float> seen = counted();
  QUANTA_CHECK(seen.has_data(), "{}: search_range: expected data, nothing was observed", name());
  return search(seen);
}

ObservedQParams HistogramObserver::calculate_qparams() const {
  Histogram<float> seen;
  QParamsRule rule;
  {
    const std::lock_guard lock(mutex_);
    seen = seen_;
    rule = rule_;
  }
  const Range range = seen.has_data() ? search(seen) : Range{kInfinity, -kInfinity};
  return qparams(std::array{range.min}, std::array{range.max}, rule);
}

bool HistogramObserver::has_data() const {
  const std::lock_guard lock(mutex_);
  return seen_.has_data();
}

void HistogramObserver::reset() {
  Histogram<float> fresh = no_counts();
  const std::lock_guard lock(mutex_);
  seen_ = std::move(fresh);
}

void HistogramObserver::merge(const Collector& other) {
  require_same_kind(other);
  const auto& source = static_cast<const HistogramObserver&>(other);
  Histogram<float> batch;
  {
    const std::lock_guard lock(source.mutex_);
    batch = source.seen_;
  }
  if (!batch.has_data()) return;
  Histogram<float> wide = no_counts();
  const std::lock_guard lock(mutex_);
  wide.min = std::min(seen_.min, batch.min);
  wide.max = std::max(seen_.max, batch.max);
  add(batch, wide);
  add(seen_, batch);
}

// State ------------------------------------------------------------------------------------------

void HistogramObserver::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  state.set(prefix + "eps", Tensor::from_values({rule_.eps}));
  detail::save_histograms<float>(state, prefix, {&seen_, 1}, {});
}

void HistogramObserver::load_state(const StateDict& state, const std::string& prefix) {
  const float eps = detail::scalar_state(state, prefix + "eps");
  Histogram<float> loaded = detail::load_histograms<float>(state, prefix, {}).front();
  QUANTA_CHECK(static_cast<std::int64_t>(loaded.counts.size()) == options_.bins,
               "load_state_dict: {}histogram: expected {} bins, got {}", prefix, options_.bins,
               loaded.counts.size());
  const std::lock_guard lock(mutex_);
  rule_.eps = eps;
  seen_ = std::move(loaded);
}

Histogram<float> HistogramObserver::counted() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

Tensor HistogramObserver::histogram() const {
  const std::lock_guard lock(mutex_);
  return Tensor::from_values(seen_.counts, {options_.bins});
}

Tensor HistogramObserver::min_val() const {
  const std::lock_guard lock(mutex_);
  return Tensor::scalar(static_cast<double>(seen_.min));
}

Tensor HistogramObserver::max_val() const {
  const std::lock_guard lock(mutex_);
  return Tensor::scalar(static_cast<double>(seen_.max));
}

namespace detail {

std::vector<CollectorKind> kinds_of_histogram_observer() {
  return {collector_kind<HistogramObserver>("HistogramObserver")};
}

}  // namespace detail
}  // namespace quanta
