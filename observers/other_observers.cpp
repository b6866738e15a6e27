#include "quanta/observers/other_observers.h"

#include <array>
#include <cmath>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/observer_factory.h"
#include "quanta/observers/detail/state.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// Whatever can be asked for its codes has that range, anything else an empty one.
IntRange natural_range(DType dtype) {
  if (is_floating_point(dtype) || dtype == DType::Bool || dtype == DType::Int64) return {0, 0};
  return quant_range(dtype);
}

// `zero_point` is checked against the codes of the observer.
void check_parameters(std::string_view op, double scale, std::int64_t zero_point, IntRange range) {
  const auto rounded = static_cast<float>(scale);
  QUANTA_CHECK(std::isfinite(rounded) && rounded > 0.0F,
               "{}: scale: expected a finite number > 0, got {}", op, rounded);
  QUANTA_CHECK(zero_point >= range.min && zero_point <= range.max,
               "{}: zero_point: expected {}..{}, got {}", op, range.min, range.max, zero_point);
}

}  // namespace

// FixedQParamsObserver ---------------------------------------------------------------------------

void describe(FixedQParamsObserverOptions& options, SettingFields& fields) {
  fields.required("scale", options.scale);
  fields.required("zero_point", options.zero_point);
  fields("dtype", options.dtype);
  fields("qscheme", options.qscheme);
  fields("quant_min", options.quant_min);
  fields("quant_max", options.quant_max);
  fields("is_dynamic", options.is_dynamic);
}

FixedQParamsObserver::FixedQParamsObserver(const Options& options) : options_(options) {
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
  check_parameters("FixedQParamsObserver", options.scale, options.zero_point, range_);
}

ObserverFactory FixedQParamsObserver::with_args(const Options& options) {
  return detail::observer_factory<FixedQParamsObserver>(options);
}

Settings FixedQParamsObserver::settings() const {
  const std::lock_guard lock(mutex_);
  return settings_of(options_);
}

ObservedQParams FixedQParamsObserver::calculate_qparams() const {
  const std::lock_guard lock(mutex_);
  return {Tensor::from_values({static_cast<float>(options_.scale)}),
          Tensor::from_int64(std::array{options_.zero_point})};
}

void FixedQParamsObserver::save_state(StateDict& state, const std::string& prefix) const {
  const ObservedQParams now = calculate_qparams();
  state.set(prefix + "scale", now.scale);
  state.set(prefix + "zero_point", now.zero_point.to(DType::Int32));
}

void FixedQParamsObserver::load_state(const StateDict& state, const std::string& prefix) {
  const std::string name = prefix + "zero_point";
  const Tensor& zero_point = detail::require_state(state, name);
  QUANTA_CHECK(zero_point.numel() == 1 && zero_point.dim() <= 1 &&
                   (zero_point.dtype() == DType::Int32 || zero_point.dtype() == DType::Int64),
               "load_state_dict: {}: expected one Int32 or Int64 value, got {} {}", name,
               zero_point.dtype(), zero_point.sizes());
  const float scale = detail::scalar_state(state, prefix + "scale");
  const std::int64_t code = zero_point.to_int64_vector()[0];
  check_parameters("load_state_dict: " + prefix, static_cast<double>(scale), code, range_);
  const std::lock_guard lock(mutex_);
  if (static_cast<float>(options_.scale) != scale) options_.scale = static_cast<double>(scale);
  options_.zero_point = code;
}

// Observers that mark a place --------------------------------------------------------------------

MarkingObserver::MarkingObserver(DType dtype) {
  dtype_ = dtype;
  range_ = natural_range(dtype);
}

ObservedQParams MarkingObserver::calculate_qparams() const {
  throw UnsupportedError(with_module_path(
      fmt::format("{}: calculate_qparams: expected an observer that calculates parameters "
                  "(MinMaxObserver, HistogramObserver, ...), this one does not",
                  name())));
}

void describe(PlaceholderObserverOptions& options, SettingFields& fields) {
  fields("dtype", options.dtype);
  fields("qscheme", options.qscheme);
  fields("quant_min", options.quant_min);
  fields("quant_max", options.quant_max);
  fields("is_dynamic", options.is_dynamic);
}

PlaceholderObserver::PlaceholderObserver(const Options& options)
    : MarkingObserver(options.dtype), options_(options) {
  qscheme_ = options.qscheme;
  is_dynamic_ = options.is_dynamic;
  if (!options.quant_min && !options.quant_max) return;
  range_ = observer_range("PlaceholderObserver", options.dtype, false, options.quant_min,
                          options.quant_max);
}

ObserverFactory PlaceholderObserver::with_args(const Options& options) {
  return detail::observer_factory<PlaceholderObserver>(options);
}

void describe(RecordingObserverOptions& options, SettingFields& fields) {
  fields("dtype", options.dtype);
}

RecordingObserver::RecordingObserver(const Options& options)
    : MarkingObserver(options.dtype), options_(options) {}

ObserverFactory RecordingObserver::with_args(const Options& options) {
  return detail::observer_factory<RecordingObserver>(options);
}

Digest RecordingObserver::digest(const Tensor& x) const {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
  return {.tensor = x.clone()};
}

bool RecordingObserver::absorb(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  tensors_.push_back(digest.tensor);
  return true;
}

void RecordingObserver::save_gathered(StateDict& state, const std::string& prefix) const {
  const std::vector<Tensor> all = get_tensor_value();
  for (std::size_t i = 0; i < all.size(); ++i) {
    state.set(fmt::format("{}tensors.{}", prefix, i), all[i]);
  }
}

void RecordingObserver::load_gathered(const StateDict& state, const std::string& prefix) {
  std::vector<Tensor> loaded;
  for (;;) {
    const Tensor* found = state.find(fmt::format("{}tensors.{}", prefix, loaded.size()));
    if (found == nullptr) break;
    loaded.push_back(*found);
  }
  const std::lock_guard lock(mutex_);
  tensors_ = std::move(loaded);
}

void RecordingObserver::reset() {
  const std::lock_guard lock(mutex_);
  tensors_.clear();
}

void RecordingObserver::merge(const Collector& other) {
  require_same_kind(other);
  const std::vector<Tensor> theirs =
      static_cast<const RecordingObserver&>(other).get_tensor_value();
  const std::lock_guard lock(mutex_);
  tensors_.insert(tensors_.end(), theirs.begin(), theirs.end());
}

std::vector<Tensor> RecordingObserver::get_tensor_value() const {
  const std::lock_guard lock(mutex_);
  return tensors_;
}

void describe(NoopObserverOptions& options, SettingFields& fields) {
  fields("dtype", options.dtype);
}

NoopObserver::NoopObserver(const Options& options)
    : MarkingObserver(options.dtype), options_(options) {}

ObserverFactory NoopObserver::with_args(const Options& options) {
  return detail::observer_factory<NoopObserver>(options);
}

void describe(ReuseInputObserverOptions& /*options*/, SettingFields& /*fields*/) {}

ReuseInputObserver::ReuseInputObserver(const Options& /*options*/)
    : MarkingObserver(DType::QUInt8) {}

ObserverFactory ReuseInputObserver::with_args(const Options& options) {
  return detail::observer_factory<ReuseInputObserver>(options);
}

namespace detail {

std::vector<CollectorKind> kinds_of_other_observers() {
  return {collector_kind<FixedQParamsObserver>("FixedQParamsObserver"),
          collector_kind<PlaceholderObserver>("PlaceholderObserver"),
          collector_kind<RecordingObserver>("RecordingObserver"),
          collector_kind<NoopObserver>("NoopObserver"),
          collector_kind<ReuseInputObserver>("ReuseInputObserver")};
}

}  // namespace detail
}  // namespace quanta
