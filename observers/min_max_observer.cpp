#include "quanta/observers/min_max_observer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/observer_factory.h"
#include "quanta/observers/detail/reduce.h"
#include "quanta/observers/detail/state.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void move_towards(std::vector<float>& running, const std::vector<float>& batch, float constant) {
  for (std::size_t c = 0; c < running.size(); ++c) {
    running[c] = running[c] + constant * (batch[c] - running[c]);
  }
}

}  // namespace

RangeObserver::RangeObserver(std::string_view op, const UniformSettings& settings,
                             std::optional<std::int64_t> ch_axis,
                             std::optional<double> averaging_constant)
    : UniformObserver(op, settings),
      per_channel_(ch_axis.has_value()),
      ch_axis_(ch_axis.value_or(0)) {
  if (per_channel_) {
    QUANTA_SUPPORTED(is_per_channel(settings.qscheme),
                     "{}: qscheme: expected a per-channel scheme, got {}", op, settings.qscheme);
    QUANTA_SUPPORTED(!settings.is_dynamic,
                     "{}: is_dynamic: expected false, dynamic quantization is per tensor", op);
  } else {
    QUANTA_SUPPORTED(!is_per_channel(settings.qscheme),
                     "{}: qscheme: expected PerTensorAffine or PerTensorSymmetric, got {}", op,
                     settings.qscheme);
  }
  const bool symmetric = settings.qscheme == QScheme::PerTensorSymmetric ||
                         settings.qscheme == QScheme::PerChannelSymmetric;
  QUANTA_SUPPORTED(!(symmetric && settings.reduce_range && settings.dtype == DType::QUInt8),
                   "{}: reduce_range: expected an affine scheme or QInt8 with it, got {} for "
                   "QUInt8",
                   op, settings.qscheme);
  if (averaging_constant) {
    QUANTA_CHECK(*averaging_constant >= 0.0 && *averaging_constant <= 1.0,
                 "{}: averaging_constant: expected 0..1, got {}", op, *averaging_constant);
    QUANTA_SUPPORTED(!settings.is_dynamic || *averaging_constant == 1.0,
                     "{}: is_dynamic: expected averaging_constant 1 with it, got {}", op,
                     *averaging_constant);
    averaging_constant_ = static_cast<float>(*averaging_constant);
  }
  clear();
}

void RangeObserver::set_batch_reduction(BatchReduction reduction) {
  const std::lock_guard lock(mutex_);
  reduction_.function = std::move(reduction);
}

RangeObserver::BatchReduction RangeObserver::batch_reduction() const {
  const std::lock_guard lock(mutex_);
  return reduction_.function;
}

void RangeObserver::clear() { seen_ = ValueRange::unobserved(per_channel_ ? 0 : 1); }

bool RangeObserver::is_empty() const {
  const auto is = [](float wanted) { return [wanted](float value) { return value == wanted; }; };
  return std::ranges::all_of(seen_.min, is(kInfinity)) &&
         std::ranges::all_of(seen_.max, is(-kInfinity));
}

Digest RangeObserver::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  const BatchReduction reduce = batch_reduction();
  if (x.numel() == 0 && !reduce) return {};
  std::optional<std::int64_t> axis;
  if (per_channel_) axis = wrap_dim(ch_axis_, x.dim(), name(), "ch_axis");
  ValueRange batch = detail::batch_range(x, axis);
  if (x.numel() > 0) detail::require_finite(name(), batch);
  if (reduce) {
    reduce(batch);
    // Empty everywhere.
    if (batch.min.empty() || batch.min[0] > batch.max[0]) return {};
  }
  return {.range = std::move(batch)};
}

bool RangeObserver::absorb(const Digest& digest) {
  const ValueRange& batch = digest.range;
  const std::lock_guard lock(mutex_);
  if (is_empty()) {
    seen_ = batch;
    return true;
  }
  QUANTA_CHECK(batch.min.size() == seen_.min.size(),
               "{}: x: expected {} channels along axis {} as before, got {}", name(),
               seen_.min.size(), ch_axis_, batch.min.size());
  if (averaging_constant_) {
    move_towards(seen_.min, batch.min, *averaging_constant_);
    move_towards(seen_.max, batch.max, *averaging_constant_);
  } else {
    seen_.widen(batch);
  }
  return true;
}

bool RangeObserver::join(Digest& digest, const Digest& next) const {
  if (averaging_constant_ || digest.range.min.size() != next.range.min.size()) return false;
  digest.range.widen(next.range);
  return true;
}

ObservedQParams RangeObserver::calculate_qparams() const {
  const std::lock_guard lock(mutex_);
  return qparams(seen_.min, seen_.max, rule_);
}

bool RangeObserver::has_data() const {
  const std::lock_guard lock(mutex_);
  return !is_empty();
}

void RangeObserver::reset() {
  const std::lock_guard lock(mutex_);
  clear();
}

void RangeObserver::merge(const Collector& other) {
  require_same_kind(other);
  QUANTA_SUPPORTED(!averaging_constant_,
                   "{}: merge: expected an observer that does not depend on the order of batches: "
                   "MinMaxObserver, PerChannelMinMaxObserver and HistogramObserver can be merged",
                   name());
  const auto& source = static_cast<const RangeObserver&>(other);
  ValueRange other_seen;
  {
    const std::lock_guard lock(source.mutex_);
    if (source.is_empty()) return;
    other_seen = source.seen_;
  }
  const std::lock_guard lock(mutex_);
  if (is_empty()) {
    seen_ = std::move(other_seen);
    return;
  }
  QUANTA_CHECK(other_seen.min.size() == seen_.min.size(), "{}: merge: expected {} channels, got {}",
               name(), seen_.min.size(), other_seen.min.size());
  seen_.widen(other_seen);
}

Tensor RangeObserver::values(const std::vector<float>& values) const {
  return per_channel_ ? Tensor::from_values(values, {static_cast<std::int64_t>(values.size())})
                      : Tensor::from_values(values, {});
}

Tensor RangeObserver::min_val() const {
  const std::lock_guard lock(mutex_);
  return values(seen_.min);
}

Tensor RangeObserver::max_val() const {
  const std::lock_guard lock(mutex_);
  return values(seen_.max);
}

void RangeObserver::set_range(const Tensor& min_val, const Tensor& max_val) {
  ValueRange range{min_val.to_float_vector(), max_val.to_float_vector()};
  QUANTA_CHECK(range.min.size() == range.max.size() && (per_channel_ || range.min.size() == 1),
               "{}: min_val: expected {} values as max_val has, got {} and {}", name(),
               per_channel_ ? "as many" : "one", range.min.size(), range.max.size());
  const std::lock_guard lock(mutex_);
  seen_ = std::move(range);
}

void RangeObserver::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  state.set(prefix + "eps", Tensor::from_values({rule_.eps}));
  state.set(prefix + "min_val", values(seen_.min));
  state.set(prefix + "max_val", values(seen_.max));
}

void RangeObserver::load_state(const StateDict& state, const std::string& prefix) {
  // torch before version 3 of the per-channel observers.
  const bool old_names =
      per_channel_ && !state.contains(prefix + "min_val") && state.contains(prefix + "min_vals");
  const std::string min_name = prefix + (old_names ? "min_vals" : "min_val");
  const std::string max_name = prefix + (old_names ? "max_vals" : "max_val");
  const float eps = detail::scalar_state(state, prefix + "eps");
  ValueRange loaded;
  if (per_channel_) {
    loaded.min = detail::float_state(detail::require_state(state, min_name), min_name);
    loaded.max = detail::float_state(detail::require_state(state, max_name), max_name);
    QUANTA_CHECK(loaded.min.size() == loaded.max.size(),
                 "load_state_dict: {}: expected {} values, got {}", max_name, loaded.min.size(),
                 loaded.max.size());
  } else {
    loaded.min = {detail::scalar_state(state, min_name)};
    loaded.max = {detail::scalar_state(state, max_name)};
  }
  const std::lock_guard lock(mutex_);
  rule_.eps = eps;
  seen_ = std::move(loaded);
}

MinMaxObserver::MinMaxObserver(const Options& options)
    : RangeObserver("MinMaxObserver", uniform_settings(options), std::nullopt, std::nullopt),
      options_(options) {}

MovingAverageMinMaxObserver::MovingAverageMinMaxObserver(const Options& options)
    : RangeObserver("MovingAverageMinMaxObserver", uniform_settings(options), std::nullopt,
                    options.averaging_constant),
      options_(options) {}

PerChannelMinMaxObserver::PerChannelMinMaxObserver(const Options& options)
    : RangeObserver("PerChannelMinMaxObserver", uniform_settings(options), options.ch_axis,
                    std::nullopt),
      options_(options) {}

MovingAveragePerChannelMinMaxObserver::MovingAveragePerChannelMinMaxObserver(const Options& options)
    : RangeObserver("MovingAveragePerChannelMinMaxObserver", uniform_settings(options),
                    options.ch_axis, options.averaging_constant),
      options_(options) {}

// Settings and factories -------------------------------------------------------------------------

void describe(MinMaxObserverOptions& options, SettingFields& fields) {
  describe_uniform(options, fields);
}

void describe(MovingAverageMinMaxObserverOptions& options, SettingFields& fields) {
  fields("averaging_constant", options.averaging_constant);
  describe_uniform(options, fields);
}

void describe(PerChannelMinMaxObserverOptions& options, SettingFields& fields) {
  fields("ch_axis", options.ch_axis);
  describe_uniform(options, fields);
}

void describe(MovingAveragePerChannelMinMaxObserverOptions& options, SettingFields& fields) {
  fields("averaging_constant", options.averaging_constant);
  fields("ch_axis", options.ch_axis);
  describe_uniform(options, fields);
}

ObserverFactory MinMaxObserver::with_args(const Options& options) {
  return detail::observer_factory<MinMaxObserver>(options);
}

ObserverFactory MovingAverageMinMaxObserver::with_args(const Options& options) {
  return detail::observer_factory<MovingAverageMinMaxObserver>(options);
}

ObserverFactory PerChannelMinMaxObserver::with_args(const Options& options) {
  return detail::observer_factory<PerChannelMinMaxObserver>(options);
}

ObserverFactory MovingAveragePerChannelMinMaxObserver::with_args(const Options& options) {
  return detail::observer_factory<MovingAveragePerChannelMinMaxObserver>(options);
}

namespace detail {

std::vector<CollectorKind> kinds_of_min_max_observer() {
  return {collector_kind<MinMaxObserver>("MinMaxObserver"),
          collector_kind<MovingAverageMinMaxObserver>("MovingAverageMinMaxObserver"),
          collector_kind<PerChannelMinMaxObserver>("PerChannelMinMaxObserver"),
          collector_kind<MovingAveragePerChannelMinMaxObserver>(
              "MovingAveragePerChannelMinMaxObserver")};
}

}  // namespace detail
}  // namespace quanta
