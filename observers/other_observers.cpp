#include "quanta/observers/other_observers.h"

#include <array>
#include <cmath>
#include <typeinfo>

#include "quanta/observers/detail/factory_name.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

[[noreturn]] void throw_no_qparams(const Observer& observer) {
  throw UnsupportedError(with_module_path(
      fmt::format("{}: calculate_qparams: expected an observer that calculates parameters "
                  "(MinMaxObserver, HistogramObserver, ...), this one does not",
                  observer.name())));
}

void require_same(const Observer& self, const Observer& other) {
  QUANTA_CHECK(typeid(self) == typeid(other), "{}: merge: expected a {}, got a {}", self.name(),
               self.name(), other.name());
  QUANTA_CHECK(self.dtype() == other.dtype() && self.qscheme() == other.qscheme() &&
                   self.quant_min() == other.quant_min() && self.quant_max() == other.quant_max() &&
                   self.is_dynamic() == other.is_dynamic(),
               "{}: merge: expected an observer with the same settings ({}, {}, {}..{}), got {}, "
               "{}, {}..{}",
               self.name(), self.dtype(), self.qscheme(), self.quant_min(), self.quant_max(),
               other.dtype(), other.qscheme(), other.quant_min(), other.quant_max());
}

// Whatever can be asked for its codes has that range, anything else an empty one.
IntRange natural_range(DType dtype) {
  if (is_floating_point(dtype) || dtype == DType::Bool || dtype == DType::Int64) return {0, 0};
  return quant_range(dtype);
}

}  // namespace

void FixedQParamsObserver::check(std::string_view op, const State& state, IntRange range) {
  QUANTA_CHECK(std::isfinite(state.scale) && state.scale > 0.0F,
               "{}: scale: expected a finite number > 0, got {}", op, state.scale);
  QUANTA_CHECK(state.zero_point >= range.min && state.zero_point <= range.max,
               "{}: zero_point: expected {}..{}, got {}", op, range.min, range.max,
               state.zero_point);
}

FixedQParamsObserver::FixedQParamsObserver(const Options& options)
    : state_{static_cast<float>(options.scale), options.zero_point} {
  dtype_ = options.dtype;
  qscheme_ = options.qscheme;
  range_ = observer_range("FixedQParamsObserver", options.dtype, false, options.quant_min,
                          options.quant_max);
  QUANTA_SUPPORTED(!options.is_dynamic,
                   "FixedQParamsObserver: is_dynamic: expected false, its parameters are fixed");
  QUANTA_SUPPORTED(!is_per_channel(options.qscheme),
                   "FixedQParamsObserver: qscheme: expected PerTensorAffine or "
                   "PerTensorSymmetric, got {}",
                   options.qscheme);
  check("FixedQParamsObserver", state_, range_);
}

ObserverFactory FixedQParamsObserver::with_args(const Options& options) {
  const Options defaults;
  detail::FactoryName name("FixedQParamsObserver");
  name.add_always("scale", options.scale);
  name.add_always("zero_point", options.zero_point);
  name.add("dtype", options.dtype, defaults.dtype);
  name.add("qscheme", options.qscheme, defaults.qscheme);
  name.add("quant_min", options.quant_min, defaults.quant_min);
  name.add("quant_max", options.quant_max, defaults.quant_max);
  static_cast<void>(FixedQParamsObserver(options));
  return {name.text(), [options] { return std::make_shared<FixedQParamsObserver>(options); }};
}

std::shared_ptr<Observer> FixedQParamsObserver::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<FixedQParamsObserver>(*this);
}

FixedQParamsObserver::State FixedQParamsObserver::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

ObservedQParams FixedQParamsObserver::calculate_qparams() const {
  const State now = state();
  return {Tensor::from_values({now.scale}), Tensor::from_int64(std::array{now.zero_point})};
}

void FixedQParamsObserver::merge(const Observer& other) {
  require_same(*this, other);
  const State theirs = static_cast<const FixedQParamsObserver&>(other).state();
  const State ours = state();
  QUANTA_CHECK(theirs == ours, "{}: merge: expected scale {} and zero point {}, got {} and {}",
               name(), ours.scale, ours.zero_point, theirs.scale, theirs.zero_point);
}

void FixedQParamsObserver::save_state(StateDict& state, const std::string& prefix) const {
  const State now = this->state();
  state.set(prefix + "scale", Tensor::from_values({now.scale}));
  state.set(prefix + "zero_point", Tensor::from_int64(std::array{now.zero_point}).to(DType::Int32));
}

void FixedQParamsObserver::load_state(const StateDict& state, const std::string& prefix) {
  const std::string name = prefix + "zero_point";
  const Tensor& zero_point = detail::require_state(state, name);
  QUANTA_CHECK(zero_point.numel() == 1 && zero_point.dim() <= 1 &&
                   (zero_point.dtype() == DType::Int32 || zero_point.dtype() == DType::Int64),
               "load_state_dict: {}: expected one Int32 or Int64 value, got {} {}", name,
               zero_point.dtype(), zero_point.sizes());
  const State loaded{detail::scalar_state(state, prefix + "scale"),
                     zero_point.to_int64_vector()[0]};
  check("load_state_dict: " + prefix, loaded, range_);
  const std::lock_guard lock(mutex_);
  state_ = loaded;
}

PlaceholderObserver::PlaceholderObserver(const Options& options) {
  dtype_ = options.dtype;
  qscheme_ = options.qscheme;
  is_dynamic_ = options.is_dynamic;
  range_ = options.quant_min || options.quant_max
               ? observer_range("PlaceholderObserver", options.dtype, false, options.quant_min,
                                options.quant_max)
               : natural_range(options.dtype);
}

ObserverFactory PlaceholderObserver::with_args(const Options& options) {
  const Options defaults;
  detail::FactoryName name("PlaceholderObserver");
  name.add("dtype", options.dtype, defaults.dtype);
  name.add("qscheme", options.qscheme, defaults.qscheme);
  name.add("quant_min", options.quant_min, defaults.quant_min);
  name.add("quant_max", options.quant_max, defaults.quant_max);
  name.add("is_dynamic", options.is_dynamic, defaults.is_dynamic);
  static_cast<void>(PlaceholderObserver(options));
  return {name.text(), [options] { return std::make_shared<PlaceholderObserver>(options); }};
}

std::shared_ptr<Observer> PlaceholderObserver::clone() const {
  return std::make_shared<PlaceholderObserver>(*this);
}
ObservedQParams PlaceholderObserver::calculate_qparams() const { throw_no_qparams(*this); }
void PlaceholderObserver::merge(const Observer& other) { require_same(*this, other); }

RecordingObserver::RecordingObserver(const Options& options) {
  dtype_ = options.dtype;
  range_ = natural_range(options.dtype);
}

ObserverFactory RecordingObserver::with_args(const Options& options) {
  detail::FactoryName name("RecordingObserver");
  name.add("dtype", options.dtype, Options{}.dtype);
  return {name.text(), [options] { return std::make_shared<RecordingObserver>(options); }};
}

std::shared_ptr<Observer> RecordingObserver::clone() const {
  const std::lock_guard lock(mutex_);
  return std::make_shared<RecordingObserver>(*this);
}

Tensor RecordingObserver::forward(const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
  Tensor copy = x.clone();
  const std::lock_guard lock(mutex_);
  tensors_.push_back(std::move(copy));
  return x;
}

ObservedQParams RecordingObserver::calculate_qparams() const { throw_no_qparams(*this); }

void RecordingObserver::reset_min_max_vals() {
  const std::lock_guard lock(mutex_);
  tensors_.clear();
}

void RecordingObserver::merge(const Observer& other) {
  require_same(*this, other);
  const std::vector<Tensor> theirs =
      static_cast<const RecordingObserver&>(other).get_tensor_value();
  const std::lock_guard lock(mutex_);
  tensors_.insert(tensors_.end(), theirs.begin(), theirs.end());
}

std::vector<Tensor> RecordingObserver::get_tensor_value() const {
  const std::lock_guard lock(mutex_);
  return tensors_;
}

NoopObserver::NoopObserver(const Options& options) {
  dtype_ = options.dtype;
  range_ = natural_range(options.dtype);
}

ObserverFactory NoopObserver::with_args(const Options& options) {
  detail::FactoryName name("NoopObserver");
  name.add("dtype", options.dtype, Options{}.dtype);
  return {name.text(), [options] { return std::make_shared<NoopObserver>(options); }};
}

std::shared_ptr<Observer> NoopObserver::clone() const {
  return std::make_shared<NoopObserver>(*this);
}
ObservedQParams NoopObserver::calculate_qparams() const { throw_no_qparams(*this); }
void NoopObserver::merge(const Observer& other) { require_same(*this, other); }

ObserverFactory ReuseInputObserver::with_args() {
  return {"ReuseInputObserver()", [] { return std::make_shared<ReuseInputObserver>(); }};
}

std::shared_ptr<Observer> ReuseInputObserver::clone() const {
  return std::make_shared<ReuseInputObserver>(*this);
}
ObservedQParams ReuseInputObserver::calculate_qparams() const { throw_no_qparams(*this); }
void ReuseInputObserver::merge(const Observer& other) { require_same(*this, other); }

}  // namespace quanta
