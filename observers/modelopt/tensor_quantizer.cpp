#include "quanta/observers/modelopt/tensor_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "quanta/observers/modelopt/detail/block_shape.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/element_format.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

constexpr std::string_view kOp = "TensorQuantizer";
constexpr NumBits kE4M3 = NumBits::floating(4, 3);
constexpr NumBits kE2M1 = NumBits::floating(2, 1);
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

bool has_scale_bits(const QuantizerConfig& config, const NumBits& bits) {
  return config.block_sizes && config.block_sizes->scale_bits == bits;
}

void check_supported(const QuantizerConfig& config) {
  config.check();
  QUANTA_SUPPORTED(!config.backend, "{}: backend: expected none on the CPU, got {}", kOp,
                   config.backend.value_or(""));
  const NumBits& bits = config.num_bits;
  if (config.block_sizes && config.block_sizes->is_dynamic()) {
    QUANTA_SUPPORTED(quanta::detail::element_format(bits).has_value(),
                     "{}: num_bits: expected 8 or a float format with dynamic blocks, got {}", kOp,
                     quanta::to_string(bits));
    QUANTA_CHECK(config.block_sizes->sizes[0].second.has_value(),
                 "{}: block_sizes: expected a size with type dynamic, got None", kOp);
  } else if (!bits.is_float) {
    QUANTA_SUPPORTED(bits.bits <= 32, "{}: num_bits: expected at most 32, got {}", kOp, bits.bits);
  }
}

QuantizerConfig make_config(const ScaledQuantDescriptor& descriptor) {
  descriptor.check();
  QuantizerConfig config;
  config.num_bits = descriptor.num_bits;
  config.fake_quant = descriptor.fake_quant;
  config.axis = descriptor.axis;
  config.is_unsigned = descriptor.is_unsigned;
  config.narrow_range = descriptor.narrow_range;
  config.block_sizes = descriptor.block_sizes;
  config.calibrator = descriptor.calib_method;
  config.pass_through_bwd = false;
  if (descriptor.dynamic) config.type = QuantType::Dynamic;
  return config;
}

// The normalized Hadamard matrix of a power of two: its own inverse.
Tensor hadamard(std::int64_t size) {
  Tensor matrix = Tensor::empty({size, size});
  auto* data = matrix.mutable_data<float>();
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  for (std::int64_t row = 0; row < size; ++row) {
    for (std::int64_t column = 0; column < size; ++column) {
      const bool odd = std::popcount(static_cast<std::uint64_t>(row & column)) % 2 != 0;
      data[row * size + column] = odd ? -scale : scale;
    }
  }
  return matrix;
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
  check_supported(config_);
  FakeQuantizeBase::enable_observer(false);
  disabled_ = !config_.enable;
  reset_calibrator();
  set_integer_dtype();
}

TensorQuantizer::TensorQuantizer(const ScaledQuantDescriptor& descriptor)
    : TensorQuantizer(make_config(descriptor)) {
  if (!descriptor.amax.defined()) return;
  Tensor amax = descriptor.amax;
  if (descriptor.scale_amax) amax = mul(amax, Tensor::scalar(*descriptor.scale_amax));
  set_amax(amax);
}

TensorQuantizer::~TensorQuantizer() = default;

TensorQuantizer::TensorQuantizer(const TensorQuantizer& other)
    : FakeQuantizeBase(other), config_(other.config_) {
  const std::lock_guard lock(other.mutex_);
  disabled_ = other.disabled_;
  amax_ = other.amax_;
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

Settings TensorQuantizer::settings() const {
  return {{"config", modelopt::to_string(config_.to_dict())}};
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
  return has_dynamic_blocks() && has_scale_bits(config_, kE8M0);
}

const BlockSizes* TensorQuantizer::static_blocks() const {
  if (!config_.block_sizes || has_dynamic_blocks()) return nullptr;
  const BlockSizes& sizes = config_.block_sizes->sizes;
  const bool any = std::any_of(sizes.begin(), sizes.end(),
                               [](const auto& entry) { return entry.second.has_value(); });
  return any ? &sizes : nullptr;
}

// The axes of unsplit values that amax keeps.
Dims TensorQuantizer::kept_axes(const Tensor& x) const {
  if (config_.axis) return wrap_axes(config_.axis->axes, x.dim(), kOp, "axis");
  if (!config_.block_sizes || has_dynamic_blocks() || config_.block_sizes->sizes.empty()) return {};
  // Sizes of None: those axes are reduced.
  Dims reduced;
  for (const auto& entry : config_.block_sizes->sizes) reduced.push_back(entry.first);
  reduced = wrap_axes(reduced, x.dim(), kOp, "block_sizes");
  Dims kept;
  for (std::int64_t axis = 0; axis < x.dim(); ++axis) {
    if (std::find(reduced.begin(), reduced.end(), axis) == reduced.end()) kept.push_back(axis);
  }
  return kept;
}

std::shared_ptr<const detail::BlockShape> TensorQuantizer::shape_for(const Tensor& x) {
  const BlockSizes* blocks = static_blocks();
  if (blocks == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!shape_) shape_ = std::make_shared<detail::BlockShape>(x.sizes(), *blocks);
  QUANTA_CHECK(shape_->input() == x.sizes(),
               "{}: x: expected the shape {} that the blocks were made for, got {}", kOp,
               shape_->input(), x.sizes());
  return shape_;
}

// Parameters -------------------------------------------------------------------------------------

Tensor TensorQuantizer::amax() const {
  if (is_mx()) return {};
  const std::lock_guard lock(mutex_);
  return amax_;
}

void TensorQuantizer::set_amax(const Tensor& amax) {
  const Tensor values = as_buffer("amax", amax);
  check_amax_values(values);
  const std::lock_guard lock(mutex_);
  QUANTA_CHECK(!amax_.defined() || amax_.sizes() == values.sizes(),
               "{}: amax: expected the shape {} as before (reset_amax allows another), got {}", kOp,
               amax_.sizes(), values.sizes());
  amax_ = values;
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
  check_amax_values(values);
  QUANTA_CHECK(values.numel() == 1, "{}: global_amax: expected one element, got {}", kOp,
               values.sizes());
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
  const Tensor values = amax();
  QUANTA_CHECK(values.defined(), "{}: amax: expected one for step_size, got none", kOp);
  return div(values, Tensor::scalar(maxbound()));
}

Tensor TensorQuantizer::export_amax() const {
  Tensor values = amax();
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
  if (values.numel() == 1) return values.reshape({1});
  if (config_.axis && config_.axis->axes.size() == 1) return values.reshape({-1});
  return values;
}

// Forward ----------------------------------------------------------------------------------------

namespace {

// What the host keeps (maxima, biases, scales) where x is; undefined stays.
Tensor beside(const Tensor& values, const Tensor& x) {
  return values.defined() ? values.to(x.device()) : values;
}

}  // namespace

Tensor TensorQuantizer::rotated(const Tensor& x) const {
  const QuantizerConfig::Rotate rotate = config_.rotation();
  if (!rotate.enable) return x;
  QUANTA_CHECK(x.dim() >= 1, "{}: x: expected an axis to rotate, got a scalar", kOp);
  const std::int64_t length = x.size(-1);
  const std::int64_t block = rotate.block_size.value_or(length & -length);
  QUANTA_CHECK(block >= 1 && (block & (block - 1)) == 0 && length % block == 0,
               "{}: rotate: block_size: expected a power of two that divides {}, got {}", kOp,
               length, block);
  const Tensor rows = x.reshape({-1, block}).to(DType::Float32);
  return matmul(rows, beside(hadamard(block), rows)).reshape(x.sizes()).to(x.dtype());
}

void TensorQuantizer::collect(const Tensor& values) {
  const std::lock_guard lock(mutex_);
  if (!calibrator_) {
    calibrator_ = std::make_shared<MaxCalibrator>(shape_ ? shape_->kept_axes() : kept_axes(values));
  }
  calibrator_->update(values.detach());
  if (bias_calibrator_) bias_calibrator_->update(values.detach());
}

Tensor TensorQuantizer::amax_for(const Tensor& values) const {
  if (config_.use_constant_amax) return Tensor::scalar(448.0);
  if (config_.constant_amax) return Tensor::scalar(*config_.constant_amax);
  const std::lock_guard lock(mutex_);
  if (config_.type != QuantType::Dynamic) {
    if (amax_.defined()) return amax_;
    if (calibrator_ && calibrator_->has_data()) return calibrator_->compute_amax();
  }
  return reduce_amax(values, shape_ ? shape_->kept_axes() : kept_axes(values));
}

Tensor TensorQuantizer::bias_for(const Tensor& values) const {
  if (!config_.bias) return {};
  const std::lock_guard lock(mutex_);
  if (config_.bias->type != QuantType::Dynamic) return bias_calibrator_->compute_bias();
  const std::shared_ptr<BiasCalibrator> own = bias_calibrator_->clone();
  own->reset();
  own->update(values.detach());
  return own->compute_bias();
}

Tensor TensorQuantizer::quantize_dynamic_blocks(const Tensor& x) const {
  const auto& [axis, block] = config_.block_sizes->sizes[0];
  DynamicBlockOptions options;
  options.num_bits = config_.num_bits;
  options.scale_bits = config_.block_sizes->scale_bits.value_or(kE8M0);
  options.block_size = *block;
  options.gradient =
      config_.pass_through_bwd || is_mx() ? GradientRule::PassThrough : GradientRule::Clip;
  const Tensor amax = options.scale_bits == kE8M0 ? Tensor() : beside(amax_for(x), x);
  const std::int64_t along = wrap_dim(axis, x.dim(), kOp, "block_sizes");
  const std::int64_t last = x.dim() - 1;
  if (along == last) return dynamic_block_quant(x, amax, options);
  return dynamic_block_quant(x.transpose(along, last), amax, options).transpose(along, last);
}

Tensor TensorQuantizer::quantize(const Tensor& values) const {
  if (has_dynamic_blocks()) return quantize_dynamic_blocks(values);
  const GradientRule rule =
      config_.pass_through_bwd ? GradientRule::PassThrough : GradientRule::Clip;
  const Tensor bias = beside(bias_for(values), values);
  const Tensor amax =
      beside(amax_for(bias.defined() ? sub(values.detach(), bias) : values), values);
  if (config_.num_bits == kE4M3) return scaled_e4m3(values, amax, {rule, bias});
  if (config_.num_bits == kE2M1) {
    StaticFp4Options options;
    options.gradient = rule;
    options.scale.quantize_block_scales = has_scale_bits(config_, kE4M3);
    if (config_.block_sizes && config_.block_sizes->four_over_six.value_or(false)) {
      options.scale.fp8_max = 256.0;
    }
    {
      const std::lock_guard lock(mutex_);
      options.global_amax = beside(global_amax_, values);
    }
    return static_fp4(values, amax, options);
  }
  const TensorQuantOptions codes{config_.num_bits.bits, config_.is_unsigned, config_.narrow_range};
  if (!has_scale_bits(config_, kE4M3)) return fake_tensor_quant(values, amax, {codes, rule, bias});
  // Two levels: the blocks' steps are themselves float8 multiples of the tensor's.
  Tensor global;
  {
    const std::lock_guard lock(mutex_);
    global = global_amax_.defined() ? global_amax_ : reduce_amax(amax);
  }
  const Tensor bound = beside(Tensor::scalar(maxbound()), values);
  const Tensor steps =
      scaled_e4m3(div(amax, bound), div(beside(global, values).reshape({}), bound));
  return fake_tensor_quant(values, mul(steps, bound), {codes, rule, bias});
}

// Scaled and rotated.
Tensor TensorQuantizer::prepared(const Tensor& x) const {
  const Tensor scale = pre_quant_scale();
  return rotated(scale.defined() ? mul(x, beside(scale, x).to(x.dtype())) : x);
}

void TensorQuantizer::update(const Tensor& x) {
  require_floating(x, Devices::All);
  if (x.numel() == 0 || is_mx()) return;
  const Tensor turned = prepared(x.detach());
  const std::shared_ptr<const detail::BlockShape> shape = shape_for(turned);
  collect(shape ? shape->split(turned) : turned);
}

Tensor TensorQuantizer::forward(const Tensor& x) {
  require_floating(x, Devices::All);
  if (x.numel() == 0) return x;
  const Tensor turned = prepared(x);
  const bool back = config_.rotation().enable &&
                    config_.rotation().mode == QuantizerConfig::RotateMode::RotateBack;
  const Switches now = switches();
  if (!is_enabled()) return back ? rotated(turned) : turned;
  if (!config_.fake_quant && now.fake_quant && !now.observer) {
    autograd::require_no_grad(kOp, turned);
    return compress(turned).dequantize();
  }
  const std::shared_ptr<const detail::BlockShape> shape = shape_for(turned);
  Tensor values = shape ? shape->split(turned) : turned;
  if (now.observer && !is_mx()) collect(values);
  if (now.fake_quant) values = quantize(values);
  if (shape) values = shape->join(values);
  return back ? rotated(values) : values;
}

CompressedTensor TensorQuantizer::compress(const Tensor& x) const {
  const NumBits& bits = config_.num_bits;
  const BlockSizes none;
  const BlockSizes& sizes = config_.block_sizes ? config_.block_sizes->sizes : none;
  const std::int64_t block = sizes.size() == 1 ? sizes[0].second.value_or(0) : 0;
  const bool last = sizes.size() == 1 && (sizes[0].first == -1 || sizes[0].first == x.dim() - 1);
  if (is_mx() && last && bits == kE2M1) return quantize_mxfp4(x, block);
  if (is_mx() && last && bits == kE4M3 && block == 32) return quantize_mxfp8(x);
  if (!has_dynamic_blocks()) {
    const Dims axis = config_.axis ? config_.axis->axes : Dims{};
    const bool is_int8 = bits == NumBits::integer(8) && !config_.is_unsigned;
    if (is_int8) return sizes.empty() ? quantize_int8(x, axis) : quantize_int8(x, sizes);
    if (bits == kE4M3) return sizes.empty() ? quantize_fp8(x, axis) : quantize_fp8(x, sizes);
  }
  if (last && bits == NumBits::integer(4) && !config_.is_unsigned && !has_dynamic_blocks()) {
    const auto& groups = config_.block_sizes->scale_block_sizes;
    if (config_.block_sizes->scale_bits && groups && groups->size() == 1 && (*groups)[0].second &&
        !config_.block_sizes->scale_bits->is_float) {
      return quantize_nf4(x, block, *(*groups)[0].second, config_.block_sizes->scale_bits->bits);
    }
    return quantize_int4(x, block);
  }
  if (last && bits == kE2M1 && has_scale_bits(config_, kE4M3)) return quantize_nvfp4(x, block);
  throw UnsupportedError(with_module_path(fmt::format(
      "{}: compress: expected a config of INT8, FP8, INT4, NF4, NVFP4, MXFP4 or MXFP8, got "
      "num_bits "
      "{}, block_sizes {}",
      kOp, quanta::to_string(bits),
      config_.block_sizes ? modelopt::to_string(to_value(*config_.block_sizes)) : "None")));
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
  const bool needs_none = is_mx() || config_.type == QuantType::Dynamic ||
                          config_.use_constant_amax || config_.constant_amax.has_value();
  return needs_none || amax_.defined() || (calibrator_ && calibrator_->has_data());
}

void TensorQuantizer::merge(const Collector& other) {
  require_same_kind(other);
  const std::shared_ptr<Collector> copied = other.clone();
  auto& source = static_cast<TensorQuantizer&>(*copied);
  const std::lock_guard lock(mutex_);
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
  if (amax_.defined()) state.set(prefix + "_amax", amax_);
  if (pre_quant_scale_.defined()) state.set(prefix + "_pre_quant_scale", pre_quant_scale_);
  if (global_amax_.defined()) state.set(prefix + "_global_amax", global_amax_);
}

void TensorQuantizer::load_state(const StateDict& state, const std::string& prefix) {
  const Switches loaded = read_switches(state, prefix);
  const auto buffer = [&](const char* name) {
    const Tensor* found = state.find(prefix + name);
    return found == nullptr ? Tensor() : as_buffer(name, *found);
  };
  const Tensor amax = buffer("_amax");
  if (amax.defined()) check_amax_values(amax);
  const Tensor scale = buffer("_pre_quant_scale");
  const Tensor global = buffer("_global_amax");
  set_switches(loaded);
  const std::lock_guard lock(mutex_);
  amax_ = amax;
  pre_quant_scale_ = scale;
  global_amax_ = global;
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
  if (config_.type == QuantType::Dynamic || is_mx()) {
    text += " amax=dynamic";
  } else if (!values.defined()) {
    text += " amax=None";
  } else if (values.numel() == 1) {
    text += fmt::format(" amax={:.4f}", values.item());
  } else {
    const std::vector<float> each = values.to_float_vector();
    const auto [low, high] = std::minmax_element(each.begin(), each.end());
    text += fmt::format(" amax=[{:.4f}, {:.4f}]({})", *low, *high, each.size());
  }
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
