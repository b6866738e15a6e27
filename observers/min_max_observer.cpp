#include "quanta/observers/min_max_observer.h"

#include <cmath>
#include <limits>

#include "quanta/observers/detail/factory_name.h"
#include "quanta/observers/detail/value_range.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename Options>
UniformSettings settings_of(const Options& options) {
  return {options.dtype,     options.qscheme, options.reduce_range, options.quant_min,
          options.quant_max, options.eps,     options.is_dynamic};
}

void move_towards(std::vector<float>& running, const std::vector<float>& batch, float constant) {
  for (std::size_t c = 0; c < running.size(); ++c) {
    running[c] = running[c] + constant * (batch[c] - running[c]);
  }
}

// Makes one at once, so that wrong arguments are found where they are written.
template <typename T>
ObserverFactory make_factory(std::string name, const typename T::Options& options) {
  static_cast<void>(T(options));
  return {std::move(name), [options] { return std::make_shared<T>(options); }};
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

void RangeObserver::clear() {
  seen_.min.assign(per_channel_ ? 0 : 1, kInfinity);
  seen_.max.assign(per_channel_ ? 0 : 1, -kInfinity);
}

bool RangeObserver::is_empty() const {
  return seen_.min.empty() ||
         (!per_channel_ && seen_.min[0] == kInfinity && seen_.max[0] == -kInfinity);
}

Tensor RangeObserver::forward(const Tensor& x) {
  require_floating(x);
  if (x.numel() == 0) return x;
  const Tensor dense = detail::dense_floats(x);
  detail::ValueRange batch =
      per_channel_ ? detail::channel_range(dense, wrap_dim(ch_axis_, x.dim(), name(), "ch_axis"))
                   : detail::tensor_range(dense);

  const std::lock_guard lock(mutex_);
  if (is_empty()) {
    seen_ = std::move(batch);
    return x;
  }
  QUANTA_CHECK(batch.min.size() == seen_.min.size(),
               "{}: x: expected {} channels along axis {} as before, got {}", name(),
               seen_.min.size(), ch_axis_, batch.min.size());
  if (averaging_constant_) {
    move_towards(seen_.min, batch.min, *averaging_constant_);
    move_towards(seen_.max, batch.max, *averaging_constant_);
  } else {
    detail::widen(seen_, batch);
  }
  return x;
}

ObservedQParams RangeObserver::calculate_qparams() const {
  const std::lock_guard lock(mutex_);
  return qparams(seen_.min, seen_.max, rule_);
}

bool RangeObserver::has_data() const {
  const std::lock_guard lock(mutex_);
  return !is_empty();
}

void RangeObserver::reset_min_max_vals() {
  const std::lock_guard lock(mutex_);
  clear();
}

void RangeObserver::merge(const Observer& other) {
  require_same_kind(other);
  QUANTA_SUPPORTED(!averaging_constant_,
                   "{}: merge: expected an observer that does not depend on the order of batches: "
                   "MinMaxObserver, PerChannelMinMaxObserver and HistogramObserver can be merged",
                   name());
  const auto& source = static_cast<const RangeObserver&>(other);
  QUANTA_CHECK(source.ch_axis_ == ch_axis_, "{}: merge: expected ch_axis {}, got {}", name(),
               ch_axis_, source.ch_axis_);
  detail::ValueRange other_seen;
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
  detail::widen(seen_, other_seen);
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
  detail::ValueRange range{min_val.to_float_vector(), max_val.to_float_vector()};
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
  detail::ValueRange loaded;
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
    : RangeObserver("MinMaxObserver", settings_of(options), std::nullopt, std::nullopt) {}

MovingAverageMinMaxObserver::MovingAverageMinMaxObserver(const Options& options)
    : RangeObserver("MovingAverageMinMaxObserver", settings_of(options), std::nullopt,
                    options.averaging_constant),
      averaging_constant_(options.averaging_constant) {}

PerChannelMinMaxObserver::PerChannelMinMaxObserver(const Options& options)
    : RangeObserver("PerChannelMinMaxObserver", settings_of(options), options.ch_axis,
                    std::nullopt) {}

MovingAveragePerChannelMinMaxObserver::MovingAveragePerChannelMinMaxObserver(const Options& options)
    : RangeObserver("MovingAveragePerChannelMinMaxObserver", settings_of(options), options.ch_axis,
                    options.averaging_constant),
      averaging_constant_(options.averaging_constant) {}

std::shared_ptr<Observer> MinMaxObserver::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<MinMaxObserver>(*this);
}

std::shared_ptr<Observer> MovingAverageMinMaxObserver::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<MovingAverageMinMaxObserver>(*this);
}

std::shared_ptr<Observer> PerChannelMinMaxObserver::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<PerChannelMinMaxObserver>(*this);
}

std::shared_ptr<Observer> MovingAveragePerChannelMinMaxObserver::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<MovingAveragePerChannelMinMaxObserver>(*this);
}

ObserverFactory MinMaxObserver::with_args(const Options& options) {
  detail::FactoryName name("MinMaxObserver");
  name.add_uniform(options, Options{});
  return make_factory<MinMaxObserver>(name.text(), options);
}

ObserverFactory MovingAverageMinMaxObserver::with_args(const Options& options) {
  const Options defaults;
  detail::FactoryName name("MovingAverageMinMaxObserver");
  name.add("averaging_constant", options.averaging_constant, defaults.averaging_constant);
  name.add_uniform(options, defaults);
  return make_factory<MovingAverageMinMaxObserver>(name.text(), options);
}

ObserverFactory PerChannelMinMaxObserver::with_args(const Options& options) {
  const Options defaults;
  detail::FactoryName name("PerChannelMinMaxObserver");
  name.add("ch_axis", options.ch_axis, defaults.ch_axis);
  name.add_uniform(options, defaults);
  return make_factory<PerChannelMinMaxObserver>(name.text(), options);
}

ObserverFactory MovingAveragePerChannelMinMaxObserver::with_args(const Options& options) {
  const Options defaults;
  detail::FactoryName name("MovingAveragePerChannelMinMaxObserver");
  name.add("averaging_constant", options.averaging_constant, defaults.averaging_constant);
  name.add("ch_axis", options.ch_axis, defaults.ch_axis);
  name.add_uniform(options, defaults);
  return make_factory<MovingAveragePerChannelMinMaxObserver>(name.text(), options);
}

namespace detail {

std::optional<double> averaging_constant(const Observer& observer) {
  if (const auto* one = dynamic_cast<const MovingAverageMinMaxObserver*>(&observer)) {
    return one->averaging_constant();
  }
  if (const auto* one = dynamic_cast<const MovingAveragePerChannelMinMaxObserver*>(&observer)) {
    return one->averaging_constant();
  }
  return std::nullopt;
}

}  // namespace detail
}  // namespace quanta
