#include "quanta/observers/fake_quantize.h"

#include <cmath>
#include <utility>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/state.h"
#include "quanta/observers/other_observers.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr const char* kObserverPrefix = "activation_post_process.";

std::shared_ptr<Observer> make_observer(std::string_view op, const ObserverFactory& factory) {
  QUANTA_CHECK(factory, "{}: observer: expected the factory of an observer (with_args), got none",
               op);
  std::shared_ptr<Observer> observer = factory();
  QUANTA_CHECK(observer != nullptr, "{}: observer: expected an observer, got null", op);
  const IntRange range = quant_range(observer->dtype());
  QUANTA_CHECK(observer->quant_min() >= range.min && observer->quant_max() <= range.max,
               "{}: observer: expected codes within {}..{} of {}, got {}..{}", op, range.min,
               range.max, observer->dtype(), observer->quant_min(), observer->quant_max());
  return observer;
}

Tensor switch_tensor(bool on, DType dtype) { return Tensor::full({1}, on ? 1.0 : 0.0, dtype); }

}  // namespace

// FakeQuantizeBase -------------------------------------------------------------------------------

FakeQuantizeBase::FakeQuantizeBase(const FakeQuantizeBase& other)
    : Observer(other), switches_(other.switches()) {}

FakeQuantizeBase::Switches FakeQuantizeBase::switches() const {
  const std::lock_guard lock(mutex_);
  return switches_;
}

void FakeQuantizeBase::set_switches(Switches switches) {
  const std::lock_guard lock(mutex_);
  switches_ = switches;
}

void FakeQuantizeBase::enable_fake_quant(bool on) {
  const std::lock_guard lock(mutex_);
  switches_.fake_quant = on;
}

void FakeQuantizeBase::enable_observer(bool on) {
  const std::lock_guard lock(mutex_);
  switches_.observer = on;
}

bool FakeQuantizeBase::is_fake_quant_enabled() const { return switches().fake_quant; }
bool FakeQuantizeBase::is_observer_enabled() const { return switches().observer; }

void FakeQuantizeBase::save_switches(StateDict& state, const std::string& prefix,
                                     DType dtype) const {
  const Switches now = switches();
  state.set(prefix + "fake_quant_enabled", switch_tensor(now.fake_quant, dtype));
  state.set(prefix + "observer_enabled", switch_tensor(now.observer, dtype));
}

FakeQuantizeBase::Switches FakeQuantizeBase::read_switches(const StateDict& state,
                                                           const std::string& prefix,
                                                           bool observer_required) {
  Switches result;
  result.fake_quant = detail::switch_state(state, prefix + "fake_quant_enabled");
  if (observer_required || state.contains(prefix + "observer_enabled")) {
    result.observer = detail::switch_state(state, prefix + "observer_enabled");
  }
  return result;
}

// FakeQuantize -----------------------------------------------------------------------------------

FakeQuantize::FakeQuantize(const ObserverFactory& observer)
    : FakeQuantize("FakeQuantize", observer) {}

FakeQuantize::FakeQuantize(std::string_view op, const ObserverFactory& observer)
    : observer_(make_observer(op, observer)) {
  dtype_ = observer_->dtype();
  qscheme_ = observer_->qscheme();
  is_dynamic_ = observer_->is_dynamic();
  range_ = {observer_->quant_min(), observer_->quant_max()};
  const bool float_zero_point = qscheme_ == QScheme::PerChannelAffineFloatQParams;
  qparams_ = {Tensor::ones({1}),
              Tensor::zeros({1}, float_zero_point ? DType::Float32 : DType::Int32)};
}

FakeQuantize::FakeQuantize(const FakeQuantize& other)
    : FakeQuantizeBase(other), observer_(other.observer_->clone()), qparams_(other.qparams()) {}

ObserverFactory FakeQuantize::with_args(const ObserverFactory& observer) {
  static_cast<void>(FakeQuantize(observer));
  return {"FakeQuantize(observer=" + observer.name + ")",
          [observer] { return std::make_shared<FakeQuantize>(observer); }};
}

std::shared_ptr<Collector> FakeQuantize::copy() const {
  return std::shared_ptr<FakeQuantize>(new FakeQuantize(*this));
}

FakeQuantize::QParams FakeQuantize::qparams() const {
  const std::lock_guard lock(mutex_);
  return qparams_;
}

FakeQuantize::QParams FakeQuantize::qparams_on(Device device) const {
  const std::lock_guard lock(mutex_);
  if (device.is_cpu()) return qparams_;
  if (!copies_.scale.defined() || copies_.scale.device() != device) {
    copies_ = {qparams_.scale.to(device), qparams_.zero_point.to(device)};
  }
  return copies_;
}

void FakeQuantize::set_qparams(const ObservedQParams& qparams) {
  QParams taken{qparams.scale, qparams.zero_point};
  if (!taken.zero_point.is_floating_point()) {
    taken.zero_point = taken.zero_point.to(DType::Int32);
  }
  const std::lock_guard lock(mutex_);
  // A range that rests keeps its copies.
  const bool is_new = !qparams_.scale.equal(taken.scale) ||
                      qparams_.zero_point.dtype() != taken.zero_point.dtype() ||
                      !qparams_.zero_point.equal(taken.zero_point);
  if (!is_new) return;
  qparams_ = std::move(taken);
  copies_ = {};
}

Tensor FakeQuantize::scale() const { return qparams().scale.clone(); }
Tensor FakeQuantize::zero_point() const { return qparams().zero_point.clone(); }

Settings FakeQuantize::settings() const { return {{"observer", to_string(*observer_)}}; }

void FakeQuantize::update(const Tensor& x) {
  if (listener_) return FakeQuantizeBase::update(x);
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
  observer_->update(x.detach());
  set_qparams(calculate_qparams());
}

Digest FakeQuantize::digest(const Tensor& x) const {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
  return observer_->digest(x.detach());
}

bool FakeQuantize::absorb(const Digest& digest) {
  if (!observer_->absorb(digest)) return false;
  set_qparams(calculate_qparams());
  return true;
}

void FakeQuantize::merge(const Collector& other) {
  require_same_kind(other);
  observer_->merge(*static_cast<const FakeQuantize&>(other).observer_);
  set_qparams(calculate_qparams());
}

Tensor FakeQuantize::forward(const Tensor& x) {
  const Switches now = switches();
  if (now.observer) update(x);
  if (!now.fake_quant) return x;
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
  const QParams used = qparams_on(x.device());
  if (!is_per_channel(qscheme_)) {
    return fake_quantize_per_tensor_affine(x, used.scale, used.zero_point, quant_min(),
                                           quant_max());
  }
  return fake_quantize_per_channel_affine(x, used.scale, used.zero_point, ch_axis(), quant_min(),
                                          quant_max());
}

void FakeQuantize::save_state(StateDict& state, const std::string& prefix) const {
  save_switches(state, prefix, switch_dtype());
  state.set(prefix + "scale", scale());
  state.set(prefix + "zero_point", zero_point());
  observer_->save_state(state, prefix + kObserverPrefix);
}

void FakeQuantize::load_state(const StateDict& state, const std::string& prefix) {
  const Switches loaded_switches = read_switches(state, prefix);
  const QParams now = qparams();
  const QParams loaded{detail::vector_state(state, prefix + "scale", DType::Float32),
                       detail::vector_state(state, prefix + "zero_point", now.zero_point.dtype())};
  QUANTA_CHECK(loaded.scale.numel() == loaded.zero_point.numel(),
               "load_state_dict: {}zero_point: expected {} values, one for each scale, got {}",
               prefix, loaded.scale.numel(), loaded.zero_point.numel());
  observer_->load_state(state, prefix + kObserverPrefix);
  set_switches(loaded_switches);
  const std::lock_guard lock(mutex_);
  qparams_ = loaded;
  copies_ = {};
}

// FixedQParamsFakeQuantize -----------------------------------------------------------------------

FixedQParamsFakeQuantize::FixedQParamsFakeQuantize(const ObserverFactory& observer)
    : FakeQuantize("FixedQParamsFakeQuantize", observer) {
  QUANTA_CHECK(dynamic_cast<const FixedQParamsObserver*>(this->observer().get()) != nullptr,
               "FixedQParamsFakeQuantize: observer: expected a FixedQParamsObserver, got a {}",
               this->observer()->name());
  set_qparams(this->observer()->calculate_qparams());
}

ObserverFactory FixedQParamsFakeQuantize::with_args(const ObserverFactory& observer) {
  static_cast<void>(FixedQParamsFakeQuantize(observer));
  return {"FixedQParamsFakeQuantize(observer=" + observer.name + ")",
          [observer] { return std::make_shared<FixedQParamsFakeQuantize>(observer); }};
}

std::shared_ptr<Collector> FixedQParamsFakeQuantize::copy() const {
  return std::shared_ptr<FixedQParamsFakeQuantize>(new FixedQParamsFakeQuantize(*this));
}

// The parameters of this quantizer, which may have been loaded.
ObservedQParams FixedQParamsFakeQuantize::calculate_qparams() const {
  const QParams used = qparams();
  return {used.scale.clone(), used.zero_point.to(DType::Int64)};
}

}  // namespace quanta
