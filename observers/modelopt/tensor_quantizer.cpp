#include "quanta/observers/modelopt/tensor_quantizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "quanta/observers/detail/state.h"
#include "quanta/observers/modelopt/detail/block_shape.h"
#include "quanta/observers/modelopt/detail/quantizer_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/element_format.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

constexpr std::string_view kOp = "TensorQuantizer";
constexpr NumBits kE4M3 = NumBits::floating(4, 3);
constexpr NumBits kE8M0 = NumBits::floating(8, 0);

std::shared_ptr<Calibrator> make_calibrator(const QuantizerConfig& config) {
  const auto* name = config.calibrator.get_if<std::string>();
  QUANTA_SUPPORTED(name != nullptr,
                   "{}: calibrator: expected max or histogram (set another amax by hand), got {}",
                   kOp, modelopt::to_string(config.calibrator));
  if (*name == "max") return nullptr;  // made when the axes are known
  HistogramCalibrator::Options options;
  options.num_bits = config.num_bits;
  options.is_unsigned = config.is_unsigned;
  if (config.axis) options.axis = config.axis->axes;
  return std::make_shared<HistogramCalibrator>(options);
}

void check_amax_values(const Tensor& amax) {
  for (const float each : amax.to_float_vector()) {
    QUANTA_CHECK(std::isfinite(each) && each >= 0.0F,
                 "{}: amax: expected finite values that are not negative, got {}", kOp, each);
  }
}

Tensor as_buffer(std::string_view argument, const Tensor& values) {
  QUANTA_CHECK(values.defined() && values.is_floating_point(),
               "{}: {}: expected a floating tensor, got {}", kOp, argument,
               values.defined() ? quanta::to_string(values.dtype()) : "an undefined one");
  return values.detach().to(DType::Float32).clone();
}

}  // namespace

TensorQuantizer::TensorQuantizer(QuantizerConfig config) : config_(std::move(config)) {
  config_.check();
  detail::check_supported(config_);
  start();
}

TensorQuantizer::TensorQuantizer(const ScaledQuantDescriptor& descriptor)
    : config_((descriptor.check(), detail::config_of(descriptor))),
      learn_amax_(descriptor.learn_amax),
      scale_amax_(descriptor.scale_amax) {
  detail::check_supported(descriptor, config_);
  start();
  if (descriptor.amax.defined()) set_amax(descriptor.amax);
}

void TensorQuantizer::start() {
  FakeQuantizeBase::enable_observer(false);
  disabled_ = !config_.enable;
  reset_calibrator();
  set_integer_dtype();
}

TensorQuantizer::~TensorQuantizer() = default;

TensorQuantizer::TensorQuantizer(const TensorQuantizer& other)
    : FakeQuantizeBase(other),
      config_(other.config_),
      learn_amax_(other.learn_amax_),
      scale_amax_(other.scale_amax_) {
  const std::lock_guard lock(other.mutex_);
  disabled_ = other.disabled_;
  amax_ = other.amax_;
  if (learn_amax_ && amax_.defined()) {
    amax_ = amax_.detach().clone();
    if (other.amax_.requires_grad()) amax_.set_requires_grad();
  }
  pre_quant_scale_ = other.pre_quant_scale_;
  global_amax_ = other.global_amax_;
  if (other.calibrator_) calibrator_ = other.calibrator_->clone();
  if (other.bias_calibrator_) bias_calibrator_ = other.bias_calibrator_->clone();
  shape_ = other.shape_;
}

ObserverFactory TensorQuantizer::with_args(const QuantizerConfig& config) {
  const TensorQuantizer checked(config);
  return {fmt::format("TensorQuantizer({})", modelopt::to_string(config.to_dict())), [config] {
            auto quantizer = std::make_shared<TensorQuantizer>(config);
            quantizer->enable_calib();
            return quantizer;
          }};
}

ObserverFactory TensorQuantizer::with_args(const ScaledQuantDescriptor& descriptor) {
  const TensorQuantizer checked(descriptor);
  // Optimizers list the parameters before any data passes.
  QUANTA_CHECK(!descriptor.learn_amax || descriptor.amax.defined(),
               "{}: with_args: amax: expected one to start from with learn_amax, got none", kOp);
  return {fmt::format("TensorQuantizer({})", modelopt::to_string(descriptor)), [descriptor] {
            auto quantizer = std::make_shared<TensorQuantizer>(descriptor);
            quantizer->enable_calib();
            return quantizer;
          }};
}

Settings TensorQuantizer::settings() const {
  Settings settings{{"config", modelopt::to_string(config_.to_dict())}};
  if (learn_amax_) settings.set("learn_amax", true);
  if (scale_amax_) settings.set("scale_amax", *scale_amax_);
  return settings;
}

std::shared_ptr<Collector> TensorQuantizer::copy() const {
  return std::shared_ptr<TensorQuantizer>(new TensorQuantizer(*this));
}

void TensorQuantizer::reset_calibrator() {
  calibrator_ = make_calibrator(config_);
  if (config_.bias) {
    Dims axes;
    for (const auto& entry : config_.bias->axes) axes.push_back(entry.first);
    bias_calibrator_ = std::make_shared<BiasCalibrator>(
        config_.bias->method.value_or(BiasCalibrator::Method::Mean), axes);
  }
}

void TensorQuantizer::set_integer_dtype() {
  dtype_ = DType::Float32;
  const bool integer = !config_.num_bits.is_float && config_.num_bits.bits >= 2 &&
                       config_.num_bits.bits <= 8 && !config_.block_sizes && !config_.bias;
  const bool plain =
      !config_.rotation().enable && (!config_.axis || config_.axis->axes.size() == 1);
  if (!integer || !plain || config_.type == QuantType::Dynamic) return;
  dtype_ = config_.is_unsigned ? DType::QUInt8 : DType::QInt8;
  qscheme_ = config_.axis ? QScheme::PerChannelSymmetric : QScheme::PerTensorSymmetric;
  const auto largest = static_cast<std::int64_t>(maxbound());
  const std::int64_t smallest = config_.narrow_range ? -largest : -largest - 1;
  range_ = {config_.is_unsigned ? 0 : smallest, largest};
}

// States -----------------------------------------------------------------------------------------

void TensorQuantizer::set_disabled(bool disabled) {
  const std::lock_guard lock(mutex_);
  disabled_ = disabled;
}

bool TensorQuantizer::is_enabled() const {
  const std::lock_guard lock(mutex_);
  return !disabled_;
}

void TensorQuantizer::enable_observer(bool on) {
  FakeQuantizeBase::enable_observer(on && config_.type != QuantType::Dynamic);
}

bool TensorQuantizer::has_dynamic_blocks() const {
  return config_.block_sizes && config_.block_sizes->is_dynamic();
}

bool TensorQuantizer::is_mx() const {
  return has_dynamic_blocks() && detail::has_scale_bits(config_, kE8M0);
}

bool TensorQuantizer::needs_no_amax() const {
  return has_dynamic_blocks() && !detail::has_scale_bits(config_, kE4M3);
}

// Where scale_amax multiplies the amax of each block, what finds these by itself cannot be used.
bool TensorQuantizer::is_block_format() const {
  return detail::is_block_format(config_) && (!scale_amax_ || !needs_no_amax());
}

// Of blocks that are split, quantized with the amax of each and joined.
const BlockSizes* TensorQuantizer::split_sizes() const {
  if (!config_.block_sizes || is_block_format()) return nullptr;
  const BlockSizes& sizes = config_.block_sizes->sizes;
  const bool any = std::any_of(sizes.begin(), sizes.end(),
                               [](const auto& entry) { return entry.second.has_value(); });
  return any ? &sizes : nullptr;
}

// The axes of unsplit values that amax keeps.
Dims TensorQuantizer::kept_axes(std::int64_t dim) const {
  if (config_.axis) return wrap_axes(config_.axis->axes, dim, kOp, "axis");
  if (!config_.block_sizes || is_block_format() || config_.block_sizes->sizes.empty()) return {};
  // Sizes of None: those axes are reduced.
  Dims reduced;
  for (const auto& entry : config_.block_sizes->sizes) reduced.push_back(entry.first);
  reduced = wrap_axes(reduced, dim, kOp, "block_sizes");
  Dims kept;
  for (std::int64_t axis = 0; axis < dim; ++axis) {
    if (std::find(reduced.begin(), reduced.end(), axis) == reduced.end()) kept.push_back(axis);
  }
  return kept;
}

// While no shape is fixed, calls that would fix one wait for each other: what two shapes leave in
// the calibrator does not mix. The lock is the call's until it has kept its shape or failed.
std::unique_lock<std::mutex> TensorQuantizer::wait_for_shape() const {
  if (split_sizes() == nullptr || has_dynamic_blocks()) return {};
  const auto is_fixed = [this] {
    const std::lock_guard lock(mutex_);
    return shape_ != nullptr;
  };
  if (is_fixed()) return {};
  std::unique_lock<std::mutex> mine(shape_mutex_);
  if (is_fixed()) mine.unlock();
  return mine;
}

std::shared_ptr<const detail::BlockShape> TensorQuantizer::shape_for(const Dims& input) const {
  const BlockSizes* blocks = split_sizes();
  if (blocks == nullptr) return nullptr;
  if (has_dynamic_blocks()) return std::make_shared<detail::BlockShape>(input, *blocks);
  const std::lock_guard lock(mutex_);
  if (!shape_) return std::make_shared<detail::BlockShape>(input, *blocks);
  QUANTA_CHECK(shape_->input() == input,
               "{}: x: expected the shape {} that the blocks were made for, got {}", kOp,
               shape_->input(), input);
  return shape_;
}

// After a call that went well: the shape is fixed from now on.
void TensorQuantizer::keep_shape(const std::shared_ptr<const detail::BlockShape>& shape) {
  if (!shape || has_dynamic_blocks()) return;
  const std::lock_guard lock(mutex_);
  if (!shape_) shape_ = shape;
}

// Parameters -------------------------------------------------------------------------------------

Tensor TensorQuantizer::amax() const {
  if (needs_no_amax()) return {};
  const std::lock_guard lock(mutex_);
  return amax_;
}

void TensorQuantizer::check_amax(const Tensor& amax) const {
  const char* why = nullptr;
  if (detail::has_constant_amax(config_)) {
    why = "a constant amax";
  } else if (needs_no_amax() || config_.type == QuantType::Dynamic) {
    why = "an amax that is dynamic";
  } else if (!config_.fake_quant) {
    why = "fake_quant=False (a compressed tensor has that of its values)";
  }
  QUANTA_SUPPORTED(why == nullptr, "{}: amax: expected none with {}, got one of {}", kOp,
                   why == nullptr ? "" : why, amax.sizes());
  check_amax_values(amax);
}

void TensorQuantizer::check_global_amax(const Tensor& amax) const {
  QUANTA_SUPPORTED(detail::has_scale_bits(config_, kE4M3) && !has_dynamic_blocks(),
                   "{}: global_amax: expected none without static blocks of scale_bits (4, 3), got "
                   "one of {}",
                   kOp, amax.sizes());
  check_amax_values(amax);
  QUANTA_CHECK(amax.numel() == 1, "{}: global_amax: expected one element, got {}", kOp,
               amax.sizes());
}

void TensorQuantizer::set_amax(const Tensor& amax) {
  const Tensor values = as_buffer("amax", amax);
  check_amax(values);
  const std::lock_guard lock(mutex_);
  QUANTA_CHECK(!amax_.defined() || amax_.sizes() == values.sizes(),
               "{}: amax: expected the shape {} as before (reset_amax allows another), got {}", kOp,
               amax_.sizes(), values.sizes());
  take_amax(values);
}

// Called with the lock. An optimizer that has the parameter keeps it.
void TensorQuantizer::take_amax(const Tensor& values) {
  if (learn_amax_ && amax_.defined() && values.defined() && amax_.sizes() == values.sizes()) {
    amax_.detach().copy_(values.to(amax_.device()));
    return;
  }
  amax_ = values;
  if (learn_amax_ && amax_.defined()) amax_.set_requires_grad();
}

std::vector<std::pair<std::string, Tensor>> TensorQuantizer::named_parameters() const {
  const std::lock_guard lock(mutex_);
  if (!learn_amax_ || !amax_.defined()) return {};
  return {{"_amax", amax_}};
}

void TensorQuantizer::replace_parameters(std::span<const Tensor> parameters) {
  const std::lock_guard lock(mutex_);
  if (!parameters.empty()) amax_ = parameters[0];
}

void TensorQuantizer::reset_amax() {
  const std::lock_guard lock(mutex_);
  amax_ = {};
  reset_calibrator();
}

void TensorQuantizer::load_calib_amax(Strict strict, HistogramMethod method,
                                      const HistogramSearch& search) {
  Tensor found;
  {
    const std::lock_guard lock(mutex_);
    const auto* histogram = dynamic_cast<const HistogramCalibrator*>(calibrator_.get());
    if (histogram != nullptr) {
      found = histogram->compute_amax(method, search);
    } else if (calibrator_) {
      found = calibrator_->compute_amax();
    }
  }
  if (found.defined()) return set_amax(found);
  QUANTA_CHECK(
      strict == Strict::No,
      "{}: load_calib_amax: expected a calibrator with data, got one that has seen no tensor", kOp);
  const std::lock_guard lock(mutex_);
  amax_ = {};
}

Tensor TensorQuantizer::pre_quant_scale() const {
  const std::lock_guard lock(mutex_);
  return pre_quant_scale_;
}

void TensorQuantizer::set_pre_quant_scale(const Tensor& scale) {
  const Tensor values = scale.defined() ? as_buffer("pre_quant_scale", scale) : Tensor();
  const std::lock_guard lock(mutex_);
  pre_quant_scale_ = values;
}

void TensorQuantizer::set_global_amax(const Tensor& amax) {
  const Tensor values = as_buffer("global_amax", amax);
  check_global_amax(values);
  const std::lock_guard lock(mutex_);
  global_amax_ = values;
}

double TensorQuantizer::maxbound() const {
  const NumBits& bits = config_.num_bits;
  if (!bits.is_float) {
    return std::ldexp(1.0, static_cast<int>(bits.bits - 1 + (config_.is_unsigned ? 1 : 0))) - 1.0;
  }
  const auto format = quanta::detail::element_format(bits);
  return format ? static_cast<double>(format->max()) : 0.0;
}

Tensor TensorQuantizer::step_size() const {
  QUANTA_SUPPORTED(!config_.num_bits.is_float,
                   "{}: step_size: expected integers, got num_bits {}: floats have no one step",
                   kOp, quanta::to_string(config_.num_bits));
  const Tensor values = host_amax();
  QUANTA_CHECK(values.defined(), "{}: amax: expected one for step_size, got none", kOp);
  return div(values, Tensor::scalar(maxbound()));
}

// The amax that was set, times scale_amax, off the tape.
Tensor TensorQuantizer::host_amax() const {
  const Tensor values = amax();
  return values.defined() ? scaled(values.detach().cpu()) : values;
}

Tensor TensorQuantizer::scaled(const Tensor& amax) const {
  return scale_amax_ ? mul_scalar(amax, *scale_amax_) : amax;
}

Tensor TensorQuantizer::export_amax() const {
  Tensor values = host_amax();
  QUANTA_CHECK(values.defined(), "{}: amax: expected one to export, got none", kOp);
  values = values.clone();
  auto* data = values.mutable_data<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    if (data[i] == 0.0F || std::isnan(data[i])) data[i] = static_cast<float>(maxbound());
    data[i] =
        math::clamp(data[i], std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
  }
  const std::lock_guard lock(mutex_);
  if (shape_) return values.reshape(shape_->exported_sizes().value_or(values.sizes()));
  // Blocks of whole axes stand for the other axes.
  const bool reduces_axes = config_.block_sizes && !is_block_format() && split_sizes() == nullptr &&
                            !config_.block_sizes->sizes.empty();
  if (!config_.axis && (!reduces_axes || values.dim() == 0)) {
    return values.numel() == 1 ? values.reshape({1}) : values;
  }
  if (values.dim() == 0) return values;
  const std::size_t axes =
      config_.axis ? config_.axis->axes.size() : kept_axes(values.dim()).size();
  if (axes != 1) return values;
  return values.numel() == 1 ? values.reshape({}) : values.reshape({-1});
}

// As an observer ---------------------------------------------------------------------------------

ObservedQParams TensorQuantizer::calculate_qparams() const {
  QUANTA_SUPPORTED(dtype_ != DType::Float32,
                   "{}: calculate_qparams: expected integers of 2..8 bits per tensor or along one "
                   "axis, got num_bits {}: such values can be simulated only",
                   kOp, quanta::to_string(config_.num_bits));
  Tensor values;
  {
    const std::lock_guard lock(mutex_);
    values = amax_.defined() || !calibrator_ ? amax_ : calibrator_->compute_amax();
    if (values.defined()) values = scaled(values.detach().cpu());
  }
  if (!values.defined()) return {Tensor::ones({1}), Tensor::zeros({1}, DType::Int64)};
  std::vector<float> scales = values.to_float_vector();
  for (float& scale : scales) {
    // An amax that counts as 0 gives zeros with any step.
    scale = scale <= math::kSmallestAmax ? 1.0F : scale / static_cast<float>(maxbound());
  }
  const Dims sizes{static_cast<std::int64_t>(scales.size())};
  return {Tensor::from_values(scales, sizes), Tensor::zeros(sizes, DType::Int64)};
}

bool TensorQuantizer::has_data() const {
  const std::lock_guard lock(mutex_);
  const bool needs_none = has_dynamic_blocks() || config_.type == QuantType::Dynamic ||
                          detail::has_constant_amax(config_);
  return needs_none || amax_.defined() || (calibrator_ && calibrator_->has_data());
}

void TensorQuantizer::merge(const Collector& other) {
  require_same_kind(other);
  const std::shared_ptr<Collector> copied = other.clone();
  auto& source = static_cast<TensorQuantizer&>(*copied);
  const std::unique_lock first = wait_for_shape();
  const std::lock_guard lock(mutex_);
  QUANTA_CHECK(!shape_ || !source.shape_ || shape_->input() == source.shape_->input(),
               "{}: other: expected one whose blocks were made for the shape {}, got {}", kOp,
               shape_ ? shape_->input() : Dims{}, source.shape_ ? source.shape_->input() : Dims{});
  const auto take = [](auto& own, const auto& theirs) {
    if (own && theirs) {
      own->merge(*theirs);
    } else if (theirs) {
      own = theirs;
    }
  };
  take(calibrator_, source.calibrator_);
  take(bias_calibrator_, source.bias_calibrator_);
  if (!shape_) shape_ = source.shape_;
}

std::int64_t TensorQuantizer::ch_axis() const noexcept {
  return config_.axis && config_.axis->axes.size() == 1 ? config_.axis->axes[0] : 0;
}

void TensorQuantizer::save_state(StateDict& state, const std::string& prefix) const {
  save_switches(state, prefix, DType::UInt8);
  const std::lock_guard lock(mutex_);
  if (amax_.defined()) state.set(prefix + "_amax", learn_amax_ ? amax_.detach().clone() : amax_);
  if (pre_quant_scale_.defined()) state.set(prefix + "_pre_quant_scale", pre_quant_scale_);
  if (global_amax_.defined()) state.set(prefix + "_global_amax", global_amax_);
  if (bias_calibrator_) bias_calibrator_->save_state(state, prefix + "bias_calibrator.");
}

void TensorQuantizer::load_state(const StateDict& state, const std::string& prefix) {
  const Switches loaded = read_switches(state, prefix);
  const auto buffer = [&](const char* name) {
    const Tensor* found = quanta::detail::find_state(state, prefix + name);
    return found == nullptr ? Tensor() : as_buffer(name, *found);
  };
  const Tensor amax = buffer("_amax");
  if (amax.defined()) check_amax(amax);
  const Tensor scale = buffer("_pre_quant_scale");
  const Tensor global = buffer("_global_amax");
  if (global.defined()) check_global_amax(global);
  std::shared_ptr<BiasCalibrator> biases;
  {
    const std::lock_guard lock(mutex_);
    biases = bias_calibrator_;
  }
  if (biases) biases->load_state(state, prefix + "bias_calibrator.");
  set_switches(loaded);
  const std::lock_guard lock(mutex_);
  take_amax(amax);
  pre_quant_scale_ = scale;
  global_amax_ = global;
}

void TensorQuantizer::save_gathered(StateDict& state, const std::string& prefix) const {
  save_state(state, prefix);
  const std::lock_guard lock(mutex_);
  if (shape_) {
    state.set(prefix + "calibrated_sizes", Tensor::from_int64(std::span(shape_->input())));
  }
  if (!calibrator_) return;
  const Settings settings = calibrator_->settings();  // what `find` points into
  if (const Setting* axis = settings.find("axis")) {
    state.set(prefix + "calibrated_axes", Tensor::from_int64(std::span(std::get<Dims>(*axis))));
  }
  calibrator_->save_state(state, prefix + "calibrator.");
}

void TensorQuantizer::load_gathered(const StateDict& state, const std::string& prefix) {
  const auto dims = [&](const std::string& name) -> std::optional<Dims> {
    const Tensor* found = quanta::detail::find_state(state, prefix + name);
    if (found == nullptr) return std::nullopt;
    Dims values;
    for (const std::int64_t each : found->to_int64_vector()) values.push_back(each);
    return values;
  };
  std::shared_ptr<Calibrator> calibrator = make_calibrator(config_);
  const std::optional<Dims> axes = dims("calibrated_axes");
  if (!calibrator && axes) calibrator = std::make_shared<MaxCalibrator>(*axes);
  if (calibrator) calibrator->load_state(state, prefix + "calibrator.");
  const std::optional<Dims> sizes = dims("calibrated_sizes");
  const BlockSizes* blocks = split_sizes();
  std::shared_ptr<const detail::BlockShape> shape;
  if (sizes && blocks != nullptr) shape = std::make_shared<detail::BlockShape>(*sizes, *blocks);
  load_state(state, prefix);
  const std::lock_guard lock(mutex_);
  calibrator_ = std::move(calibrator);
  shape_ = std::move(shape);
}

std::string TensorQuantizer::to_string() const {
  if (!is_enabled()) return "disabled";
  std::string text = fmt::format(
      "{}{} bit{}{}", config_.is_unsigned ? "unsigned " : "", quanta::to_string(config_.num_bits),
      config_.narrow_range ? " narrow" : "", config_.fake_quant ? " fake" : "");
  if (config_.block_sizes) {
    text += fmt::format(" block_sizes={},", modelopt::to_string(to_value(*config_.block_sizes)));
  } else if (config_.axis) {
    text += " axis=" + modelopt::to_string(to_value(*config_.axis));
  } else {
    text += " per-tensor";
  }
  const Tensor values = amax();
  if (config_.type == QuantType::Dynamic || needs_no_amax()) {
    text += " amax=dynamic";
  } else if (!values.defined()) {
    text += " amax=None";
  } else if (values.numel() == 1) {
    text += fmt::format(" amax={:.4f}", values.item());
  } else {
    const std::vector<float> each = values.detach().to_float_vector();
    const auto [low, high] = std::minmax_element(each.begin(), each.end());
    text += fmt::format(" amax=[{:.4f}, {:.4f}]({})", *low, *high, each.size());
  }
  if (scale_amax_) text += " *" + float_text(*scale_amax_);
  if (learn_amax_) text += " learned";
  if (pre_quant_scale().defined()) text += " pre_quant_scale";
  if (config_.rotation().enable) text += " rotated";
  const bool histogram = config_.calibrator == ConfigValue("histogram");
  text += fmt::format(" calibrator={}", histogram ? "HistogramCalibrator" : "MaxCalibrator");
  const Switches now = switches();
  if (now.fake_quant) text += " quant";
  if (now.observer) text += " calib";
  return text;
}

SequentialQuantizer::SequentialQuantizer(std::vector<std::shared_ptr<TensorQuantizer>> quantizers)
    : quantizers_(std::move(quantizers)) {
  QUANTA_CHECK(!quantizers_.empty(),
               "SequentialQuantizer: quantizers: expected at least one, got 0");
  for (const auto& each : quantizers_) {
    QUANTA_CHECK(each != nullptr, "SequentialQuantizer: quantizers: expected no null, got one");
  }
}

Tensor SequentialQuantizer::forward(const Tensor& x) const {
  Tensor result = x;
  for (const auto& each : quantizers_) result = each->forward(result);
  return result;
}

}  // namespace quanta::modelopt
