#include "quanta/nn/aimet/float_quantizer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "quanta/nn/aimet/detail/affine_parameters.h"
#include "quanta/nn/aimet/detail/state.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet {
namespace {

constexpr std::string_view kName = "FloatQuantizeDequantize";

FloatSpec spec_from(const FloatQuantizerOptions& options) {
  const bool by_fields = options.exponent_bits.has_value() || options.mantissa_bits.has_value() ||
                         options.finite.has_value() || options.unsigned_zero.has_value();
  if (options.dtype.has_value()) {
    QUANTA_CHECK(!by_fields,
                 "{}: dtype: expected either dtype or exponent_bits, mantissa_bits, finite and "
                 "unsigned_zero, got {} beside them",
                 kName, *options.dtype);
    return FloatSpec::from_name(*options.dtype);
  }
  QUANTA_CHECK(options.exponent_bits.has_value() && options.mantissa_bits.has_value(),
               "{}: {}: expected dtype, or exponent_bits and mantissa_bits, got {}", kName,
               options.exponent_bits.has_value() ? "mantissa_bits" : "exponent_bits", "nothing");
  const FloatSpec spec{*options.exponent_bits, *options.mantissa_bits,
                       options.finite.value_or(false), options.unsigned_zero.value_or(false)};
  spec.max();
  return spec;
}

std::shared_ptr<EncodingAnalyzer> analyzer_from(const FloatQuantizerOptions& options) {
  if (options.analyzer != nullptr) {
    QUANTA_CHECK(quanta::detail::broadcasts_to(options.analyzer->shape(), options.shape),
                 "{}: analyzer: expected a shape that can be expanded to {}, got {}", kName,
                 options.shape, options.analyzer->shape());
    return options.analyzer;
  }
  if (spec_from(options).bitwidth() >= 16) return nullptr;
  return std::make_shared<MinMaxAnalyzer>(options.shape, options.block_size);
}

std::optional<float> meta_scale_from(const FloatQuantizerOptions& options) {
  const Tensor& meta = options.meta_scale;
  if (!meta.defined()) return std::nullopt;
  QUANTA_CHECK(meta.is_floating_point() && meta.numel() == 1 && meta.item() > 0.0 &&
                   std::isfinite(meta.item()),
               "{}: meta_scale: expected one finite number > 0, got {} {}", kName, meta.dtype(),
               meta.sizes());
  QUANTA_CHECK(
      spec_from(options) == FloatSpec::from_name("float4_e2m1fn") && !options.power_of_two_scale,
      "{}: meta_scale: expected float4_e2m1fn without power_of_two_scale, got {}", kName,
      spec_from(options).name());
  return static_cast<float>(meta.item());
}

Tensor largest_magnitude(const Range& range) {
  return detail::map_two(range.min, range.max, [](float min, float max) {
    return std::max(std::fabs(min), std::fabs(max));
  });
}

}  // namespace

FloatQuantizeDequantize::FloatQuantizeDequantize(const Options& options)
    : Quantizer(options.shape, options.block_size, analyzer_from(options)),
      spec_(spec_from(options)),
      power_of_two_scale_(options.power_of_two_scale),
      meta_scale_(meta_scale_from(options)),
      gradient_(options.gradient),
      maxval_(Tensor::full(options.shape, spec_.max())) {
  register_buffer("maxval", maxval_, InState::Optional);
}

std::shared_ptr<Quantizer> FloatQuantizeDequantize::clone() const {
  return detail::clone_of(*this);
}

DequantizedTensor FloatQuantizeDequantize::operator()(const Tensor& x) const {
  EncodedTensor y = Quantizer::operator()(x);
  if (y.kind() == EncodedTensor::Kind::Plain) return {y.tensor(), nullptr};
  return DequantizedTensor(std::move(y));
}

Tensor FloatQuantizeDequantize::scale_of(const Tensor& maxval) const {
  const float log_max = std::log2(static_cast<float>(spec_.max()));
  const bool whole = power_of_two_scale_;
  return detail::map_two(maxval, maxval, [&](float value, float) {
    const float exponent = std::log2(std::fabs(value)) - log_max;
    const float scale = std::exp2(whole ? math::round_half_even(exponent) : exponent);
    if (!meta_scale_.has_value()) return scale;
    // The smallest number in the place of 0, by which nothing can be divided.
    const float code = math::round_to_format(scale / *meta_scale_, math::kE4M3FN);
    return std::max(code, math::power_of_two(math::kE4M3FN.step_exponent())) * *meta_scale_;
  });
}

Tensor FloatQuantizeDequantize::get_scale() const {
  if (!maxval_.defined()) return Tensor::ones(shape_);
  const Tensor scale = scale_of(maxval_.to(Device::cpu()));
  // Of values, so that a recording knows it for a constant: no run changes the buffer.
  const auto count = static_cast<std::size_t>(scale.numel());
  return Tensor::from_values(std::span(scale.data<float>(), count), scale.sizes());
}

void FloatQuantizeDequantize::set_maxval(const Tensor& maxval) {
  QUANTA_CHECK(maxval.defined() && maxval.is_floating_point() &&
                   quanta::detail::broadcasts_to(maxval.sizes(), shape_),
               "{}: maxval: expected a floating tensor that can be expanded to {}, got {}", kName,
               shape_, maxval.defined() ? quanta::to_string(maxval.sizes()) : "an undefined one");
  for (const float value : maxval.detach().to_float_vector()) {
    QUANTA_CHECK(value > 0.0F, "{}: maxval: expected numbers > 0, got {}", kName, value);
  }
  put_maxval(maxval.detach().to(DType::Float32));
}

void FloatQuantizeDequantize::forget_range() { put_maxval(Tensor::full({}, spec_.max())); }

// Where the one before it was.
void FloatQuantizeDequantize::put_maxval(const Tensor& maxval) {
  const Device device = maxval_.defined() ? maxval_.device() : Device::cpu();
  maxval_ = maxval.expand(shape_).clone(MemoryFormat::Contiguous).to(device);
}

EncodingPtr FloatQuantizeDequantize::encoding_with(const Tensor& scale) const {
  if (!meta_scale_.has_value()) return std::make_shared<FloatEncoding>(scale, spec_, block_size_);
  return FloatEncoding::nvfp4(scale, Tensor::scalar(static_cast<double>(*meta_scale_)),
                              block_size_);
}

EncodingPtr FloatQuantizeDequantize::encoding() const { return encoding_with(get_scale()); }

Range FloatQuantizeDequantize::range_of_batch(const Tensor& x) const {
  return analyzer_->compute_range_of(x, (std::int64_t{1} << bitwidth()) - 1, false);
}

Range FloatQuantizeDequantize::range_of_all() const {
  return analyzer_->compute_range((std::int64_t{1} << bitwidth()) - 1, false);
}

EncodingPtr FloatQuantizeDequantize::encoding_of(const Range& range) const {
  const Tensor maxval = largest_magnitude(range).expand(shape_).contiguous();
  return encoding_with(scale_of(maxval));
}

void FloatQuantizeDequantize::take_range(const Range& range) {
  put_maxval(largest_magnitude(range));
}

EncodedTensor FloatQuantizeDequantize::apply(const Tensor& x, const EncodingPtr& encoding) const {
  if (!x.is_floating_point()) return x;
  return {
      float_quantize_dequantize(x, encoding->scale().to(x.device()), spec_, block_size_, gradient_),
      EncodedTensor::Kind::Dequantized, encoding};
}

std::string FloatQuantizeDequantize::extra_repr() const {
  std::string text =
      spec_.is_builtin()
          ? fmt::format("dtype=torch.{}", spec_.name())
          : fmt::format("exponent_bits={}, mantissa_bits={}, finite={}, unsigned_zero={}",
                        spec_.exponent_bits, spec_.mantissa_bits, spec_.finite ? "True" : "False",
                        spec_.unsigned_zero ? "True" : "False");
  if (!shape_.empty()) text += ", shape=" + detail::tuple_text(shape_);
  if (!block_size_.empty()) text += ", block_size=" + detail::tuple_text(block_size_);
  return text;
}

void FloatQuantizeDequantize::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_number(state, prefix, "exponent_bits", static_cast<double>(spec_.exponent_bits));
  detail::save_number(state, prefix, "mantissa_bits", static_cast<double>(spec_.mantissa_bits));
  detail::save_number(state, prefix, "finite", spec_.finite ? 1.0 : 0.0);
  detail::save_number(state, prefix, "unsigned_zero", spec_.unsigned_zero ? 1.0 : 0.0);
  detail::save_number(state, prefix, "power_of_two_scale", power_of_two_scale_ ? 1.0 : 0.0);
  detail::save_dims(state, prefix, "block_size", block_size_);
  if (meta_scale_.has_value()) {
    detail::save_number(state, prefix, "meta_scale", static_cast<double>(*meta_scale_));
  }
}

void FloatQuantizeDequantize::load_state(nn::StateReader& reader) {
  const auto flag = [&](std::string_view name, bool otherwise) {
    const std::optional<double> value = detail::read_number(reader, name);
    return value.has_value() ? *value != 0.0 : otherwise;
  };
  const FloatSpec spec{detail::read_integer(reader, "exponent_bits").value_or(spec_.exponent_bits),
                       detail::read_integer(reader, "mantissa_bits").value_or(spec_.mantissa_bits),
                       flag("finite", spec_.finite), flag("unsigned_zero", spec_.unsigned_zero)};
  const std::optional<Dims> read_blocks = detail::read_dims(reader, "block_size");
  const Dims blocks = read_blocks.value_or(block_size_);
  std::shared_ptr<EncodingAnalyzer> analyzer = analyzer_;
  try {
    static_cast<void>(spec.max());
    if (detail::check_blocks(reader, blocks, shape_)) analyzer = analyzer_for(shape_, blocks);
  } catch (const Error& error) {
    reader.problem(
        fmt::format("{}: {}", reader.full_name(detail::extra_name("exponent_bits")), error.what()));
  }
  std::optional<float> meta = meta_scale_;
  if (reader.find(detail::extra_name("meta_scale")) != nullptr) {
    const std::optional<double> value = detail::read_number(reader, "meta_scale");
    if (value.has_value()) meta = static_cast<float>(*value);
  } else if (read_blocks.has_value()) {
    meta = std::nullopt;
  }
  // States of before it was saved lack it.
  bool whole = power_of_two_scale_ && reader.find(detail::extra_name("meta_scale")) == nullptr;
  if (reader.find(detail::extra_name("power_of_two_scale")) != nullptr) {
    whole = flag("power_of_two_scale", whole);
  }
  if (meta.has_value() && !(*meta > 0.0F && std::isfinite(*meta) && !whole &&
                            spec == FloatSpec::from_name("float4_e2m1fn"))) {
    reader.problem(fmt::format(
        "{}: expected a number > 0 of float4_e2m1fn without power_of_two_scale, got {} of {}{}",
        reader.full_name(detail::extra_name("meta_scale")), *meta, spec.name(),
        whole ? " with it" : ""));
  }
  const Tensor* maxval = reader.find("maxval");
  if (maxval != nullptr && maxval->is_floating_point()) {
    for (const float value : maxval->detach().cpu().to_float_vector()) {
      if (value > 0.0F) continue;
      reader.problem(
          fmt::format("{}: expected numbers > 0, got {}", reader.full_name("maxval"), value));
      break;
    }
  }
  // A state that is whole and has no maxval removes it; one that lacks other parts leaves it.
  const bool removes = maxval == nullptr && read_blocks.has_value();
  Tensor added;
  if (!maxval_.defined() && maxval != nullptr) {
    added = detail::as_floats(reader, "maxval", maxval);
    if (added.defined() && added.sizes() != shape_) {
      reader.problem(fmt::format("{}: expected {}, got {}", reader.full_name("maxval"), shape_,
                                 added.sizes()));
    }
  }
  reader.on_commit([=, this] {
    spec_ = spec;
    block_size_ = blocks;
    analyzer_ = analyzer;
    meta_scale_ = meta;
    power_of_two_scale_ = whole;
    if (added.defined()) put_maxval(added);
    if (removes) maxval_ = Tensor();
  });
}

void FloatQuantizeDequantize::make_room_for(const StateDict& state) {
  const Tensor* maxval = state.find("maxval");
  if (maxval == nullptr || maxval->sizes() == shape_) return;
  const Dims shape = maxval->sizes();
  const Tensor* blocks = state.find(detail::extra_name("block_size"));
  const bool fits = blocks != nullptr && blocks->dtype() == DType::Int64 &&
                    blocks->numel() == static_cast<std::int64_t>(shape.size());
  const Dims sizes = fits ? Dims(blocks->to_int64_vector()) : Dims{};
  analyzer_ = analyzer_for(shape, sizes);
  block_size_ = sizes;
  shape_ = shape;
  put_maxval(Tensor::full({}, spec_.max()));
}

}  // namespace quanta::aimet
