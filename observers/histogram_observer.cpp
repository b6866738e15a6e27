#include "quanta/observers/histogram_observer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "quanta/observers/detail/factory_name.h"
#include "quanta/observers/detail/histogram.h"
#include "quanta/observers/detail/value_range.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kMostBins = 1 << 24;  // bin numbers stay exact in float32

Tensor finite_values(const Tensor& dense) {
  const auto* x = dense.data<float>();
  std::vector<float> kept;
  std::copy_if(x, x + dense.numel(), std::back_inserter(kept),
               [](float value) { return std::fabs(value) != kInfinity; });
  return Tensor::from_values(kept, {static_cast<std::int64_t>(kept.size())});
}

}  // namespace

bool HistogramObserver::State::is_empty() const noexcept {
  return min == kInfinity || max == -kInfinity;
}

HistogramObserver::State HistogramObserver::empty_state() const {
  return {std::vector<float>(static_cast<std::size_t>(bins_)), kInfinity, -kInfinity};
}

HistogramObserver::HistogramObserver(const Options& options)
    : UniformObserver("HistogramObserver",
                      {options.dtype, options.qscheme, options.reduce_range, options.quant_min,
                       options.quant_max, options.eps, options.is_dynamic}),
      bins_(options.bins) {
  QUANTA_CHECK(bins_ >= 1 && bins_ <= kMostBins, "HistogramObserver: bins: expected 1..{}, got {}",
               kMostBins, bins_);
  QUANTA_SUPPORTED(!is_per_channel(options.qscheme),
                   "HistogramObserver: qscheme: expected PerTensorAffine or PerTensorSymmetric, "
                   "got {}",
                   options.qscheme);
  QUANTA_SUPPORTED(!is_floating_point(options.dtype),
                   "HistogramObserver: dtype: expected an integer type, got {}", options.dtype);
  QUANTA_SUPPORTED(!options.is_dynamic,
                   "HistogramObserver: is_dynamic: expected false, only MinMaxObserver, "
                   "MovingAverageMinMaxObserver and PlaceholderObserver can be dynamic");
  state_ = empty_state();
}

ObserverFactory HistogramObserver::with_args(const Options& options) {
  const Options defaults;
  detail::FactoryName name("HistogramObserver");
  name.add("bins", options.bins, defaults.bins);
  name.add_uniform(options, defaults);
  static_cast<void>(HistogramObserver(options));
  return {name.text(), [options] { return std::make_shared<HistogramObserver>(options); }};
}

std::shared_ptr<Observer> HistogramObserver::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<HistogramObserver>(*this);
}

// `batch` counts over a range that holds the state's.
void HistogramObserver::add(State& state, const State& batch) {
  if (state.is_empty()) {
    state = batch;
    return;
  }
  if (batch.min != state.min || batch.max != state.max) {
    state.histogram =
        detail::rescale_histogram(state.histogram, state.min, state.max, batch.min, batch.max);
    state.min = batch.min;
    state.max = batch.max;
  }
  for (std::size_t i = 0; i < state.histogram.size(); ++i) state.histogram[i] += batch.histogram[i];
}

Tensor HistogramObserver::forward(const Tensor& x) {
  require_floating(x);
  if (x.numel() == 0) return x;
  Tensor values = detail::dense_floats(x);
  detail::ValueRange range = detail::tensor_range(values);
  QUANTA_CHECK(!std::isnan(range.min[0]), "{}: x: expected numbers, got NaN", name());
  if (range.min[0] == -kInfinity || range.max[0] == kInfinity) {
    values = finite_values(values);
    if (values.numel() == 0) return x;
    range = detail::tensor_range(values);
  }

  const auto count = [&](float min, float max) {
    const std::span<const float> span(values.data<float>(),
                                      static_cast<std::size_t>(values.numel()));
    return State{detail::count_values(span, bins_, min, max), min, max};
  };
  const auto joined = [&](const State& state) {
    return Range{std::min(state.min, range.min[0]), std::max(state.max, range.max[0])};
  };

  // Counting is most of the work, so it runs without the lock, on the guess that no other thread
  // widens the range meanwhile. If one does, the batch is counted again.
  Range guess{};
  {
    const std::lock_guard lock(mutex_);
    guess = joined(state_);
  }
  State batch = count(guess.min, guess.max);
  const std::lock_guard lock(mutex_);
  const Range needed = joined(state_);
  if (needed.min != guess.min || needed.max != guess.max) batch = count(needed.min, needed.max);
  add(state_, batch);
  return x;
}

HistogramObserver::Range HistogramObserver::search(const State& state) const {
  // torch takes the bits of the dtype's storage: 8 for quint4x2, whatever the range in use.
  const double levels = std::exp2(static_cast<double>(8 * item_size(dtype())));
  const detail::BinRange kept = detail::search_bins(state.histogram, state.min, state.max, levels);
  const float bin_width = (state.max - state.min) / static_cast<float>(bins_);
  return {state.min + bin_width * static_cast<float>(kept.first),
          state.min + bin_width * static_cast<float>(kept.last + 1)};
}

HistogramObserver::Range HistogramObserver::search_range() const {
  State state;
  {
    const std::lock_guard lock(mutex_);
    state = state_;
  }
  QUANTA_CHECK(!state.is_empty(), "{}: search_range: expected data, nothing was observed", name());
  return search(state);
}

ObservedQParams HistogramObserver::calculate_qparams() const {
  State state;
  QParamsRule rule;
  {
    const std::lock_guard lock(mutex_);
    state = state_;
    rule = rule_;
  }
  const Range range = state.is_empty() ? Range{kInfinity, -kInfinity} : search(state);
  return qparams(std::array{range.min}, std::array{range.max}, rule);
}

bool HistogramObserver::has_data() const {
  const std::lock_guard lock(mutex_);
  return !state_.is_empty();
}

void HistogramObserver::reset_min_max_vals() {
  State fresh = empty_state();
  const std::lock_guard lock(mutex_);
  state_ = std::move(fresh);
}

void HistogramObserver::merge(const Observer& other) {
  require_same_kind(other);
  const auto& source = static_cast<const HistogramObserver&>(other);
  QUANTA_CHECK(source.bins_ == bins_, "{}: merge: expected {} bins, got {}", name(), bins_,
               source.bins_);
  State batch;
  {
    const std::lock_guard lock(source.mutex_);
    batch = source.state_;
  }
  if (batch.is_empty()) return;
  const std::lock_guard lock(mutex_);
  State wide{std::vector<float>(static_cast<std::size_t>(bins_)), std::min(state_.min, batch.min),
             std::max(state_.max, batch.max)};
  add(batch, wide);
  add(state_, batch);
}

void HistogramObserver::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  state.set(prefix + "eps", Tensor::from_values({rule_.eps}));
  state.set(prefix + "histogram", Tensor::from_values(state_.histogram, {bins_}));
  state.set(prefix + "min_val", Tensor::scalar(static_cast<double>(state_.min)));
  state.set(prefix + "max_val", Tensor::scalar(static_cast<double>(state_.max)));
}

void HistogramObserver::load_state(const StateDict& state, const std::string& prefix) {
  const float eps = detail::scalar_state(state, prefix + "eps");
  const std::string name = prefix + "histogram";
  State loaded{detail::float_state(detail::require_state(state, name), name),
               detail::scalar_state(state, prefix + "min_val"),
               detail::scalar_state(state, prefix + "max_val")};
  QUANTA_CHECK(static_cast<std::int64_t>(loaded.histogram.size()) == bins_,
               "load_state_dict: {}: expected {} bins, got {}", name, bins_,
               loaded.histogram.size());
  QUANTA_CHECK(std::all_of(loaded.histogram.begin(), loaded.histogram.end(),
                           [](float value) { return value >= 0.0F && std::isfinite(value); }),
               "load_state_dict: {}: expected finite counts >= 0", name);
  QUANTA_CHECK(loaded.is_empty() || (std::isfinite(loaded.min) && std::isfinite(loaded.max) &&
                                     loaded.min <= loaded.max),
               "load_state_dict: {}min_val, max_val: expected finite min_val <= max_val, got {}, "
               "{}",
               prefix, loaded.min, loaded.max);
  const std::lock_guard lock(mutex_);
  rule_.eps = eps;
  state_ = std::move(loaded);
}

Tensor HistogramObserver::histogram() const {
  const std::lock_guard lock(mutex_);
  return Tensor::from_values(state_.histogram, {bins_});
}

Tensor HistogramObserver::min_val() const {
  const std::lock_guard lock(mutex_);
  return Tensor::scalar(static_cast<double>(state_.min));
}

Tensor HistogramObserver::max_val() const {
  const std::lock_guard lock(mutex_);
  return Tensor::scalar(static_cast<double>(state_.max));
}

}  // namespace quanta
