// What TensorQuantizer does with a tensor.

#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "quanta/observers/modelopt/detail/block_shape.h"
#include "quanta/observers/modelopt/detail/quantizer_support.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

constexpr std::string_view kOp = "TensorQuantizer";
constexpr NumBits kE4M3 = NumBits::floating(4, 3);
constexpr NumBits kE2M1 = NumBits::floating(2, 1);

// Writes only where something changes, so that a step's saved tensors stay as they were.
void raise_to_zero(const Tensor& amax) {
  const Tensor values = amax.detach();
  const Tensor raised = clamp(values, 0.0, std::nullopt);
  if (!values.equal(raised)) values.copy_(raised);
}

// What the host keeps (maxima, biases, scales) where x is; undefined stays.
Tensor beside(const Tensor& values, const Tensor& x) {
  return values.defined() ? values.to(x.device()) : values;
}

}  // namespace

Tensor TensorQuantizer::rotated(const Tensor& x) const {
  const QuantizerConfig::Rotate rotate = config_.rotation();
  return rotate.enable ? detail::rotated(x, rotate) : x;
}

bool TensorQuantizer::has_static_bias() const {
  return config_.bias && config_.bias->type != QuantType::Dynamic;
}

// The calibrator, or a new one for values of these sizes. Called with the lock.
std::shared_ptr<Calibrator> TensorQuantizer::calibrator_for(const Dims& input,
                                                            const detail::BlockShape* shape) const {
  if (calibrator_) return calibrator_;
  return std::make_shared<MaxCalibrator>(
      shape != nullptr ? shape->kept_axes() : kept_axes(static_cast<std::int64_t>(input.size())));
}

void TensorQuantizer::collect(const Tensor& values, const detail::BlockShape* shape) {
  if (!has_static_bias()) {
    for (;;) {
      const Digest found = digest_of(values, shape);
      if (found.is_empty()) return;
      if (!take_in(found, shape)) continue;
      listener_(found);
      return;
    }
  }
  const Tensor plain = values.detach();
  std::shared_ptr<BiasCalibrator> biases;
  {
    const std::lock_guard lock(mutex_);
    biases = bias_calibrator_;
  }
  biases->update(plain);
  const Tensor seen = sub(plain, bias_for(plain));
  const std::lock_guard lock(mutex_);
  calibrator_ = calibrator_for(seen.sizes(), shape);
  calibrator_->update(seen);
}

// The halves of collect.
Digest TensorQuantizer::digest_of(const Tensor& values, const detail::BlockShape* shape) const {
  const Tensor plain = values.detach();
  const Tensor bias = bias_for(plain);
  std::shared_ptr<Calibrator> calibrator;
  {
    const std::lock_guard lock(mutex_);
    calibrator = calibrator_for(plain.sizes(), shape);
  }
  Digest found = calibrator->digest(bias.defined() ? sub(plain, bias) : plain);
  found.input = shape != nullptr ? shape->input() : plain.sizes();
  return found;
}

bool TensorQuantizer::take_in(const Digest& digest, const detail::BlockShape* shape) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Calibrator> calibrator = calibrator_for(digest.input, shape);
  if (!calibrator->absorb(digest)) return false;
  calibrator_ = calibrator;
  return true;
}

Tensor TensorQuantizer::amax_for(const Tensor& values, const detail::BlockShape* shape) const {
  if (config_.use_constant_amax) return Tensor::scalar(448.0);
  if (config_.constant_amax) return Tensor::scalar(*config_.constant_amax);
  if (config_.type != QuantType::Dynamic && !needs_no_amax()) {
    const std::lock_guard lock(mutex_);
    if (amax_.defined()) {
      // A step of an optimizer may have taken it below 0.
      if (learn_amax_) raise_to_zero(amax_);
      return scaled(amax_);
    }
    if (calibrator_ && calibrator_->has_data()) return scaled(calibrator_->compute_amax());
    QUANTA_CHECK(has_dynamic_blocks(),
                 "{}: amax: expected one that was set or calibrated (or type dynamic, for that of "
                 "each tensor), got none",
                 kOp);
  }
  return scaled(
      reduce_amax(values, shape != nullptr ? shape->kept_axes() : kept_axes(values.dim())));
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
  DynamicBlockOptions options;
  options.num_bits = config_.num_bits;
  options.scale_bits = config_.block_sizes->scale_bits;
  options.gradient =
      config_.pass_through_bwd || needs_no_amax() ? GradientRule::PassThrough : GradientRule::Clip;
  const Tensor amax = needs_no_amax() ? Tensor() : beside(amax_for(x, nullptr), x);
  const BlockSizes& sizes = config_.block_sizes->sizes;
  if (sizes.size() > 1) {
    return detail::BlockShape(x.sizes(), sizes).map_rows(x, [&](const Tensor& rows) {
      options.block_size = rows.size(-1);
      return dynamic_block_quant(rows, amax, options);
    });
  }
  const std::int64_t along = wrap_dim(sizes[0].first, x.dim(), kOp, "block_sizes");
  const std::int64_t last = x.dim() - 1;
  options.block_size = sizes[0].second.value_or(x.size(along));
  if (along == last) return dynamic_block_quant(x, amax, options);
  return dynamic_block_quant(x.transpose(along, last), amax, options).transpose(along, last);
}

// The amax of blocks as their scales are kept: rounded by scale_bits.
Tensor TensorQuantizer::with_rounded_scales(const Tensor& amax) const {
  if (detail::has_integer_scales(config_)) {
    const auto& groups = config_.block_sizes->scale_block_sizes;
    const std::int64_t group = groups ? (*groups)[0].second.value_or(0) : 0;
    const Tensor plain = amax.detach();
    const Tensor rounded =
        detail::double_quantized(plain.cpu(), config_.block_sizes->scale_bits->bits, group);
    if (!amax.requires_grad()) return beside(rounded, amax);
    // Straight through to a learned amax.
    return add(amax, sub(beside(rounded, plain), plain));
  }
  if (!detail::has_scale_bits(config_, kE4M3)) return amax;
  // Two levels: the blocks' steps are themselves float8 multiples of the tensor's.
  Tensor global = global_amax();
  if (!global.defined()) global = reduce_amax(amax.detach());
  const Tensor bound = beside(Tensor::scalar(maxbound()), amax);
  const Tensor steps = scaled_e4m3(div(amax, bound), div(beside(global, amax).reshape({}), bound));
  return mul(steps, bound);
}

Tensor TensorQuantizer::quantize(const Tensor& values, const detail::BlockShape* shape) const {
  const Tensor bias = beside(bias_for(values), values);
  QUANTA_CHECK(bias.defined() || !config_.bias,
               "{}: bias: expected one that was calibrated (or type dynamic, for that of each "
               "tensor), got none",
               kOp);
  if (is_block_format()) {
    if (!bias.defined()) return quantize_dynamic_blocks(values);
    const Tensor there = bias.to(values.dtype());
    return add(quantize_dynamic_blocks(sub(values, there)), there);
  }
  const GradientRule rule =
      config_.pass_through_bwd ? GradientRule::PassThrough : GradientRule::Clip;
  const Tensor amax =
      beside(amax_for(bias.defined() ? sub(values.detach(), bias) : values, shape), values);
  if (config_.num_bits == kE2M1) {
    const bool integers = detail::has_integer_scales(config_);
    StaticFp4Options options;
    options.gradient = rule;
    options.scale.quantize_block_scales = detail::has_scale_bits(config_, kE4M3);
    if (config_.block_sizes && config_.block_sizes->four_over_six.value_or(false)) {
      options.scale.fp8_max = 256.0;
    }
    options.global_amax = beside(global_amax(), values);
    const Tensor used = integers ? with_rounded_scales(amax) : amax;
    if (!bias.defined()) return static_fp4(values, used, options);
    const Tensor there = bias.to(values.dtype());
    return add(static_fp4(sub(values, there), used, options), there);
  }
  const Tensor used = with_rounded_scales(amax);
  if (config_.num_bits == kE4M3) return scaled_e4m3(values, used, {rule, bias});
  // Dynamic blocks leave the lowest code out, whoever finds their amax.
  const bool narrow = config_.narrow_range || detail::is_block_format(config_);
  const TensorQuantOptions codes{config_.num_bits.bits, config_.is_unsigned, narrow};
  return fake_tensor_quant(values, used, {codes, rule, bias});
}

Tensor TensorQuantizer::global_amax() const {
  const std::lock_guard lock(mutex_);
  return global_amax_.defined() ? scaled(global_amax_) : global_amax_;
}

// Scaled and rotated.
Tensor TensorQuantizer::prepared(const Tensor& x) const {
  const Tensor scale = pre_quant_scale();
  return rotated(scale.defined() ? mul(x, beside(scale, x).to(x.dtype())) : x);
}

void TensorQuantizer::update(const Tensor& x) {
  require_floating(x, Devices::All);
  if (x.numel() == 0 || needs_no_amax()) return;
  const Tensor turned = prepared(x.detach());
  const std::unique_lock first = wait_for_shape();
  const std::shared_ptr<const detail::BlockShape> shape = shape_for(turned.sizes());
  collect(shape ? shape->split(turned) : turned, shape.get());
  keep_shape(shape);
}

DigestKind TensorQuantizer::digests() const {
  if (has_static_bias()) return DigestKind::None;
  const std::lock_guard lock(mutex_);
  return calibrator_ ? calibrator_->digests() : DigestKind::Alone;
}

Digest TensorQuantizer::digest(const Tensor& x) const {
  if (has_static_bias()) throw_without_digests("digest");
  require_floating(x, Devices::All);
  if (x.numel() == 0 || needs_no_amax()) return {};
  const Tensor turned = prepared(x.detach());
  const std::shared_ptr<const detail::BlockShape> shape = shape_for(turned.sizes());
  return digest_of(shape ? shape->split(turned) : turned, shape.get());
}

bool TensorQuantizer::absorb(const Digest& digest) {
  if (has_static_bias()) throw_without_digests("absorb");
  const std::unique_lock first = wait_for_shape();
  const std::shared_ptr<const detail::BlockShape> shape = shape_for(digest.input);
  if (!take_in(digest, shape.get())) return false;
  keep_shape(shape);
  return true;
}

bool TensorQuantizer::join(Digest& digest, const Digest& next) const {
  const std::lock_guard lock(mutex_);
  return digest.input == next.input && calibrator_ && calibrator_->join(digest, next);
}

void TensorQuantizer::move_frame(const ValueRange& range) {
  if (digests() != DigestKind::Framed) throw_without_digests("move_frame");
  const std::lock_guard lock(mutex_);
  calibrator_->move_frame(range);
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
  const std::unique_lock first = wait_for_shape();
  const std::shared_ptr<const detail::BlockShape> shape = shape_for(turned.sizes());
  Tensor values = shape ? shape->split(turned) : turned;
  if (now.observer && !needs_no_amax()) collect(values, shape.get());
  if (now.fake_quant) values = quantize(values, shape.get());
  keep_shape(shape);
  if (shape) values = shape->join(values);
  return back ? rotated(values) : values;
}

CompressedTensor TensorQuantizer::compress(const Tensor& x) const {
  QUANTA_SUPPORTED(!scale_amax_ && !detail::has_constant_amax(config_),
                   "{}: compress: expected no scale_amax and no constant amax (a compressed tensor "
                   "has the amax of its values), got one",
                   kOp);
  const NumBits& bits = config_.num_bits;
  const BlockConfig blocks = config_.block_sizes.value_or(BlockConfig{});
  const BlockSizes& sizes = blocks.sizes;
  const std::int64_t block = sizes.size() == 1 ? sizes[0].second.value_or(0) : 0;
  const bool last = sizes.size() == 1 && (sizes[0].first == -1 || sizes[0].first == x.dim() - 1);
  const bool plain_integer = !bits.is_float && !config_.is_unsigned && !config_.narrow_range;
  if (is_mx() && last && bits == kE2M1) return quantize_mxfp4(x, block);
  if (is_mx() && last && bits == kE4M3 && block == 32) return quantize_mxfp8(x);
  if (!has_dynamic_blocks() && !blocks.scale_bits) {
    const Dims axis = config_.axis ? config_.axis->axes : Dims{};
    if (plain_integer && bits.bits == 8) {
      return sizes.empty() ? quantize_int8(x, axis) : quantize_int8(x, sizes);
    }
    if (bits == kE4M3) return sizes.empty() ? quantize_fp8(x, axis) : quantize_fp8(x, sizes);
    if (last && plain_integer && bits.bits == 4) return quantize_int4(x, block);
  }
  if (!has_dynamic_blocks() && last && plain_integer && bits.bits == 4 &&
      detail::has_integer_scales(config_) && blocks.scale_block_sizes) {
    return quantize_nf4(x, block, (*blocks.scale_block_sizes)[0].second.value_or(0),
                        blocks.scale_bits->bits);
  }
  if (last && bits == kE2M1 && detail::has_scale_bits(config_, kE4M3) &&
      !blocks.four_over_six.value_or(false)) {
    const Tensor global = global_amax();
    return quantize_nvfp4(x, block, global.defined() ? std::optional(global.item()) : std::nullopt);
  }
  throw UnsupportedError(with_module_path(fmt::format(
      "{}: compress: expected a config of INT8, FP8, INT4, NF4, NVFP4, MXFP4 or MXFP8, got "
      "num_bits {}, block_sizes {}, unsigned {}, narrow_range {}",
      kOp, quanta::to_string(bits),
      config_.block_sizes ? modelopt::to_string(to_value(blocks)) : "None", config_.is_unsigned,
      config_.narrow_range)));
}

}  // namespace quanta::modelopt
