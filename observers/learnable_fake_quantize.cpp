#include "quanta/observers/learnable_fake_quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quanta/observers/detail/observer_factory.h"
#include "quanta/observers/detail/state.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"

namespace quanta {
namespace {

constexpr const char* kName = "LearnableFakeQuantize";

Tensor parameter_copy(const Tensor& parameter) {
  Tensor copy = parameter.detach().clone();
  if (parameter.requires_grad()) copy.set_requires_grad();
  return copy;
}

// 2 * mean |x| / sqrt(quant_max), at least eps, of each row of x [rows, elements].
Tensor mean_magnitude_scale(const Tensor& x, std::int64_t quant_max, float eps) {
  const double factor = 2.0 / std::sqrt(static_cast<double>(quant_max));
  return clamp(mul_scalar(mean(x.abs(), {1}), factor), eps,
               std::numeric_limits<double>::infinity());
}

// Writes only where something changes, so that a step's saved tensors stay as they were.
void overwrite(const Tensor& target, const Tensor& values) {
  const Tensor plain = target.detach();
  if (!plain.equal(values)) plain.copy_(values);
}

}  // namespace

void describe(LearnableFakeQuantizeOptions& options, SettingFields& fields) {
  fields.shown("observer", options.observer.name);
  fields("scale", options.scale);
  fields("zero_point", options.zero_point);
  fields("channel_len", options.channel_len);
  fields("use_grad_scaling", options.use_grad_scaling);
  fields("mean_magnitude_start", options.mean_magnitude_start);
}

LearnableFakeQuantize::LearnableFakeQuantize(const Options& options) : options_(options) {
  const FakeQuantize checked(options.observer);
  observer_ = checked.observer();
  dtype_ = observer_->dtype();
  qscheme_ = observer_->qscheme();
  is_dynamic_ = observer_->is_dynamic();
  range_ = {observer_->quant_min(), observer_->quant_max()};
  QUANTA_CHECK(qscheme_ != QScheme::PerChannelAffineFloatQParams,
               "{}: observer: expected integer zero points, got {}", kName, qscheme_);
  QUANTA_CHECK(std::isfinite(options.scale) && static_cast<float>(options.scale) > 0.0F,
               "{}: scale: expected a finite number > 0, got {}", kName, options.scale);
  QUANTA_CHECK(std::isfinite(options.zero_point),
               "{}: zero_point: expected a finite number, got {}", kName, options.zero_point);
  if (options.channel_len) {
    QUANTA_CHECK(
        *options.channel_len >= 1 && is_per_channel(qscheme_),
        "{}: channel_len: expected at least 1, with a per-channel observer, got {} with {}", kName,
        *options.channel_len, qscheme_);
  }
  QUANTA_CHECK(
      !options.mean_magnitude_start || (is_symmetric() && range_.max > 0),
      "{}: mean_magnitude_start: expected a symmetric scheme with codes above 0, got {} with "
      "{}..{}",
      kName, qscheme_, range_.min, range_.max);
  const Dims sizes{options.channel_len.value_or(1)};
  parameters_ = {Tensor::full(sizes, options.scale), Tensor::full(sizes, options.zero_point)};
}

LearnableFakeQuantize::LearnableFakeQuantize(const LearnableFakeQuantize& other)
    : FakeQuantizeBase(other), observer_(other.observer_->clone()), options_(other.options_) {
  const std::lock_guard lock(other.mutex_);
  parameters_ = {parameter_copy(other.parameters_.scale),
                 parameter_copy(other.parameters_.zero_point)};
  static_enabled_ = other.static_enabled_;
  learning_enabled_ = other.learning_enabled_;
  has_data_ = other.has_data_;
  eps_ = other.eps_;
}

ObserverFactory LearnableFakeQuantize::with_args(const Options& options) {
  return detail::observer_factory<LearnableFakeQuantize>(options);
}

Settings LearnableFakeQuantize::settings() const { return settings_of(options_); }

std::shared_ptr<Collector> LearnableFakeQuantize::copy() const {
  return std::shared_ptr<LearnableFakeQuantize>(new LearnableFakeQuantize(*this));
}

// Modes ------------------------------------------------------------------------------------------

void LearnableFakeQuantize::enable_observer(bool on) {
  const std::lock_guard lock(mutex_);
  static_enabled_ = on;
}

bool LearnableFakeQuantize::is_observer_enabled() const {
  const std::lock_guard lock(mutex_);
  return static_enabled_;
}

bool LearnableFakeQuantize::is_learning_enabled() const {
  const std::lock_guard lock(mutex_);
  return learning_enabled_;
}

void LearnableFakeQuantize::set_learning(bool on) {
  const std::lock_guard lock(mutex_);
  learning_enabled_ = on;
  parameters_.scale.set_requires_grad(on);
  parameters_.zero_point.set_requires_grad(on);
}

void LearnableFakeQuantize::enable_param_learning() {
  set_learning(true);
  enable_fake_quant(true);
  enable_observer(false);
}

void LearnableFakeQuantize::enable_static_estimate() {
  set_learning(false);
  enable_fake_quant(true);
  enable_observer(true);
}

void LearnableFakeQuantize::enable_static_observation() {
  set_learning(false);
  enable_fake_quant(false);
  enable_observer(true);
}

// Parameters -------------------------------------------------------------------------------------

bool LearnableFakeQuantize::is_symmetric() const noexcept {
  return qscheme_ == QScheme::PerTensorSymmetric || qscheme_ == QScheme::PerChannelSymmetric;
}

LearnableFakeQuantize::Parameters LearnableFakeQuantize::own_parameters() const {
  const std::lock_guard lock(mutex_);
  return parameters_;
}

std::vector<std::pair<std::string, Tensor>> LearnableFakeQuantize::named_parameters() const {
  const Parameters own = own_parameters();
  return {{"scale", own.scale}, {"zero_point", own.zero_point}};
}

void LearnableFakeQuantize::replace_parameters(std::span<const Tensor> parameters) {
  const std::lock_guard lock(mutex_);
  parameters_ = {parameters[0], parameters[1]};
}

Tensor LearnableFakeQuantize::scale() const { return own_parameters().scale; }
Tensor LearnableFakeQuantize::zero_point() const { return own_parameters().zero_point; }

// Called with the lock.
void LearnableFakeQuantize::take_over(const ObservedQParams& observed) {
  if (parameters_.scale.sizes() != observed.scale.sizes()) {
    QUANTA_CHECK(!parameters_.scale.requires_grad() && parameters_.scale.numel() == 1,
                 "{}: channel_len: expected {}, the channels observed (give it, or observe before "
                 "gradients are asked for), got {}",
                 name(), observed.scale.numel(), parameters_.scale.numel());
    const Tensor sized = Tensor::zeros(observed.scale.sizes());
    const Device device = parameters_.scale.device();
    parameters_ = {sized.to(device), sized.clone().to(device)};
  }
  overwrite(parameters_.scale, observed.scale);
  overwrite(parameters_.zero_point, observed.zero_point.to(DType::Float32));
  has_data_ = observer_->has_data();
}

// Called with the lock.
void LearnableFakeQuantize::hold_bounds() {
  const Tensor scale = parameters_.scale.detach();
  if (!scale.device().is_cpu()) {
    overwrite(scale, clamp(scale, eps_, std::numeric_limits<double>::infinity()));
    return;
  }
  const auto count = static_cast<std::size_t>(scale.numel());
  const float* values = scale.data<float>();
  if (std::any_of(values, values + count, [&](float one) { return one < eps_; })) {
    auto* changed = scale.mutable_data<float>();
    for (std::size_t c = 0; c < count; ++c) changed[c] = std::max(changed[c], eps_);
  }
}

// Called with the lock.
void LearnableFakeQuantize::hold_symmetry() {
  if (!is_symmetric()) return;
  const Tensor& zero_point = parameters_.zero_point;
  overwrite(zero_point, Tensor::zeros(zero_point.sizes()).to(zero_point.device()));
}

void LearnableFakeQuantize::require_defined(const Tensor& x) const {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", name());
}

// With mean_magnitude_start that of x.
std::vector<float> LearnableFakeQuantize::start_scale(const Tensor& x) const {
  if (!options_.mean_magnitude_start || x.numel() == 0) return {};
  float eps = 0.0F;
  {
    const std::lock_guard lock(mutex_);
    eps = eps_;
  }
  const Tensor values = x.detach().cpu().to(DType::Float32);
  const Tensor first = is_per_channel(qscheme_) ? values.transpose(0, ch_axis()) : values;
  const std::int64_t rows = is_per_channel(qscheme_) ? first.size(0) : 1;
  return mean_magnitude_scale(first.contiguous().reshape({rows, x.numel() / rows}), quant_max(),
                              eps)
      .to_float_vector();
}

// What the observer has calculated now, with that scale if there is one.
void LearnableFakeQuantize::follow(const std::vector<float>& start_scale) {
  const std::lock_guard lock(mutex_);
  ObservedQParams found = observer_->calculate_qparams();
  if (!start_scale.empty()) {
    found.scale = Tensor::from_values(start_scale, {static_cast<std::int64_t>(start_scale.size())});
  }
  take_over(found);
  hold_symmetry();
}

Digest LearnableFakeQuantize::digest(const Tensor& x) const {
  require_defined(x);
  Digest found = observer_->digest(x.detach());
  found.scale = start_scale(x);
  return found;
}

bool LearnableFakeQuantize::absorb(const Digest& digest) {
  if (!observer_->absorb(digest)) return false;
  follow(digest.scale);
  return true;
}

bool LearnableFakeQuantize::join(Digest& digest, const Digest& next) const {
  if (!observer_->join(digest, next)) return false;
  digest.scale = next.scale;
  return true;
}

LearnableFakeQuantize::Parameters LearnableFakeQuantize::observed(const Tensor& x) {
  if (listener_) {
    FakeQuantizeBase::update(x);
  } else {
    observer_->update(x.detach());
    follow(start_scale(x));
  }
  const std::lock_guard lock(mutex_);
  // The next call overwrites them: gradients would mean nothing, and a saved one would be lost.
  return {parameters_.scale.detach().clone(), parameters_.zero_point.detach().clone()};
}

LearnableFakeQuantize::Parameters LearnableFakeQuantize::held() {
  const std::lock_guard lock(mutex_);
  hold_bounds();
  hold_symmetry();
  has_data_ = has_data_ || parameters_.scale.requires_grad();
  return parameters_;
}

void LearnableFakeQuantize::update(const Tensor& x) {
  require_defined(x);
  static_cast<void>(observed(x));
}

Tensor LearnableFakeQuantize::forward(const Tensor& x) {
  require_defined(x);
  const Parameters used = is_observer_enabled() ? observed(x) : held();
  if (!is_fake_quant_enabled()) return x;
  const double elements = static_cast<double>(x.numel()) * static_cast<double>(quant_max());
  const double grad_factor =
      options_.use_grad_scaling && elements > 0.0 ? 1.0 / std::sqrt(elements) : 1.0;
  if (is_per_channel(qscheme_)) {
    return fake_quantize_learnable_per_channel_affine(x, used.scale, used.zero_point, ch_axis(),
                                                      quant_min(), quant_max(), grad_factor);
  }
  return fake_quantize_learnable_per_tensor_affine(x, used.scale, used.zero_point, quant_min(),
                                                   quant_max(), grad_factor);
}

bool LearnableFakeQuantize::has_data() const {
  const std::lock_guard lock(mutex_);
  return has_data_;
}

ObservedQParams LearnableFakeQuantize::calculate_qparams() const {
  const std::lock_guard lock(mutex_);
  ObservedQParams result{parameters_.scale.detach().cpu().clone(),
                         Tensor::empty(parameters_.scale.sizes(), DType::Int64)};
  auto* scale = result.scale.mutable_data<float>();
  auto* zero_point = result.zero_point.mutable_data<std::int64_t>();
  const Tensor points = parameters_.zero_point.detach().cpu();
  const float* learned = points.data<float>();
  for (std::int64_t c = 0; c < result.scale.numel(); ++c) {
    scale[c] = std::max(scale[c], eps_);
    zero_point[c] = static_cast<std::int64_t>(math::learned_zero_point(
        learned[c], static_cast<float>(quant_min()), static_cast<float>(quant_max())));
  }
  return result;
}

// State ------------------------------------------------------------------------------------------

void LearnableFakeQuantize::save_state(StateDict& state, const std::string& prefix) const {
  const Switches now = switches();
  {
    const std::lock_guard lock(mutex_);
    const auto set = [&](const char* name, bool on) {
      state.set(prefix + name, Tensor::full({1}, on ? 1.0 : 0.0, DType::UInt8));
    };
    state.set(prefix + "scale", parameters_.scale.detach().clone());
    state.set(prefix + "zero_point", parameters_.zero_point.detach().clone());
    set("fake_quant_enabled", now.fake_quant);
    set("observer_enabled", now.observer);
    set("static_enabled", static_enabled_);
    set("learning_enabled", learning_enabled_);
    state.set(prefix + "eps", Tensor::from_values({eps_}));
  }
  observer_->save_state(state, prefix + "activation_post_process.");
}

void LearnableFakeQuantize::load_state(const StateDict& state, const std::string& prefix) {
  const Tensor scale = detail::vector_state(state, prefix + "scale", DType::Float32);
  const Tensor zero_point = detail::vector_state(state, prefix + "zero_point", DType::Float32);
  const Parameters own = own_parameters();
  const bool resized = scale.numel() != own.scale.numel();
  QUANTA_CHECK(scale.numel() == zero_point.numel() &&
                   (!resized || (own.scale.numel() == 1 && is_per_channel(qscheme_) &&
                                 !own.scale.requires_grad())),
               "load_state_dict: {}scale: expected {} values for each of scale and zero_point, got "
               "{} and {}",
               prefix, own.scale.numel(), scale.numel(), zero_point.numel());
  const Switches switches = read_switches(state, prefix, false);
  const bool static_enabled = detail::switch_state(state, prefix + "static_enabled");
  const bool learning_enabled = detail::switch_state(state, prefix + "learning_enabled");
  const float eps = detail::scalar_state(state, prefix + "eps");
  observer_->load_state(state, prefix + "activation_post_process.");
  set_switches(switches);
  const std::lock_guard lock(mutex_);
  if (resized) {
    const Device device = parameters_.scale.device();
    parameters_ = {scale.to(device), zero_point.to(device)};
  } else {
    overwrite(parameters_.scale, scale);
    overwrite(parameters_.zero_point, zero_point);
  }
  static_enabled_ = static_enabled;
  learning_enabled_ = learning_enabled;
  eps_ = eps;
  has_data_ = learning_enabled || observer_->has_data();
}

void LearnableFakeQuantize::load_gathered(const StateDict& state, const std::string& prefix) {
  const Dims sizes{detail::vector_state(state, prefix + "scale", DType::Float32).numel()};
  {
    const std::lock_guard lock(mutex_);
    const Device device = parameters_.scale.device();
    if (parameters_.scale.sizes() != sizes && !parameters_.scale.requires_grad()) {
      parameters_ = {Tensor::ones(sizes).to(device), Tensor::zeros(sizes).to(device)};
    }
  }
  load_state(state, prefix);
}

}  // namespace quanta
