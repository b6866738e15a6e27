#include "quanta/observers/aimet/float_quantizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "quanta/observers/aimet/detail/affine_parameters.h"
#include "quanta/observers/aimet/detail/state.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/float_formats.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet {

static std::span<const std::string_view> enumerators(FloatGradient) {
  static constexpr std::array<std::string_view, 2> kNames{"Aimet", "StraightThrough"};
  return kNames;
}

namespace {

using autograd::BackwardContext;

constexpr std::string_view kOp = "float_quantize_dequantize";

void check_x(const Tensor& x) {
  QUANTA_CHECK(x.defined() && (x.dtype() == DType::Float32 || x.dtype() == DType::Float16 ||
                               x.dtype() == DType::BFloat16),
               "{}: x: expected Float32, Float16 or BFloat16, got {}", kOp,
               x.defined() ? to_string(x.dtype()) : "an undefined one");
}

// function(x, scale) for every element, in the memory order of the layout.
template <typename Function>
void for_each_scaled(const cpu::AffineLayout& layout, Function&& function) {
  const cpu::AffineRows rows(layout);
  const std::int64_t grain =
      std::max<std::int64_t>(1, cpu::kElementGrain / std::max<std::int64_t>(rows.length(), 1));
  parallel_for(rows.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    rows.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t at) {
      for (std::int64_t row = 0; row < count; ++row) {
        for (std::int64_t i = 0; i < rows.length(); ++i) {
          function((first + row) * rows.length() + i,
                   at + row * rows.run_stride() + i * rows.step());
        }
      }
    });
  });
}

// Whose kernels do not know the format: of more than 16 bits, or with the widest exponents.
Tensor by_fake_cast(const Tensor& x, const Tensor& scale, const FloatSpec& spec,
                    const cpu::AffineLayout& layout) {
  const auto max = static_cast<float>(spec.max());
  Tensor scaled = Tensor::empty(x.sizes());
  const auto* from = x.data<float>();
  const auto* scales = scale.data<float>();
  auto* to = static_cast<float*>(scaled.data_ptr());
  for_each_scaled(layout, [&](std::int64_t i, std::int64_t p) {
    to[i] = math::clamp(from[i] / scales[p], -max, max);
  });
  const Tensor cast = fake_cast_to_ieee_float(scaled, spec.max(), spec.exponent_bits,
                                              spec.mantissa_bits, spec.finite);
  const auto* rounded = cast.data<float>();
  for_each_scaled(layout, [&](std::int64_t i, std::int64_t p) { to[i] = rounded[i] * scales[p]; });
  return scaled;
}

// Arguments: x, scale.
struct FloatQuantization final : Op<FloatQuantization> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{2};
  FloatSpec spec;
  Dims block_size;
  FloatGradient gradient_rule = FloatGradient::Aimet;

  FloatQuantization() = default;
  FloatQuantization(const FloatSpec& format, const Dims& blocks, FloatGradient rule)
      : spec(format), block_size(blocks), gradient_rule(rule) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const Tensor& scale = in[1];
    check_x(x);
    QUANTA_CHECK(scale.defined() && scale.is_floating_point(),
                 "{}: scale: expected a floating tensor, got {}", kOp,
                 scale.defined() ? to_string(scale.dtype()) : "an undefined one");
    spec.max();
    const MemoryFormat format =
        spec.grid().has_value() ? x.suggested_format() : MemoryFormat::Contiguous;
    layout(x.sizes(), scale.sizes(), format);
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const std::optional<math::FloatFormat> grid = spec.grid();
    const Tensor x = in[0].to(DType::Float32);
    const Tensor scales = in[1].to(DType::Float32).contiguous();
    const MemoryFormat format = grid.has_value() ? x.suggested_format() : MemoryFormat::Contiguous;
    const cpu::AffineLayout parameters = layout(x.sizes(), scales.sizes(), format);
    if (!grid.has_value()) {
      copy_result(by_fake_cast(x, scales, spec, parameters).to(out[0].dtype()), out[0]);
      return "scalar";
    }
    const bool is_direct = out[0].dtype() == DType::Float32;
    const Tensor y = is_direct ? out[0] : Tensor::empty(x.sizes(), DType::Float32, format);
    cpu::round_to_format(x.data<float>(), parameters, {*grid}, scales.data<float>(), nullptr,
                         static_cast<float*>(y.data_ptr()));
    if (!is_direct) copy_result(y.to(out[0].dtype()), out[0]);
    return "simd";
  }

  /// The scale gets no gradient, and one that asks for it is refused.
  GradientUse gradient_use(std::uint64_t needed) const override {
    return (needed & ~std::uint64_t{1}) != 0 ? GradientUse{} : GradientUse::of(0b11);
  }
  /// The gradient takes the way of the values: it is rounded to the format as well.
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const Tensor x = context.input(0).to(DType::Float32).contiguous();
    const Tensor scale = context.input(1).to(DType::Float32).contiguous();
    const Tensor grad = context.grad().to(DType::Float32).contiguous();
    const Tensor x_grad = Tensor::zeros(x.sizes());
    const bool straight = gradient_rule == FloatGradient::StraightThrough;
    if (straight || spec.has_conversion()) {
      const auto* values = x.data<float>();
      const auto* scales = scale.data<float>();
      const auto* upstream = grad.data<float>();
      auto* to = static_cast<float*>(x_grad.data_ptr());
      const auto max = static_cast<float>(spec.max());
      const std::optional<math::FloatFormat> grid = spec.grid();
      for_each_scaled(layout(x.sizes(), scale.sizes(), MemoryFormat::Contiguous),
                      [&](std::int64_t i, std::int64_t p) {
                        if (!(std::fabs(values[i] / scales[p]) <= max)) return;
                        to[i] = straight ? upstream[i]
                                         : math::round_to_format(upstream[i] * scales[p], *grid,
                                                                 math::Overflow::Special) /
                                               scales[p];
                      });
    }
    return {x_grad.to(context.input_dtype(0)), {}};
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = FloatQuantization;
    static constexpr std::array kTable{
        attribute<Self, &Self::spec, &FloatSpec::exponent_bits>("exponent_bits"),
        attribute<Self, &Self::spec, &FloatSpec::mantissa_bits>("mantissa_bits"),
        attribute<Self, &Self::spec, &FloatSpec::finite>("finite"),
        attribute<Self, &Self::spec, &FloatSpec::unsigned_zero>("unsigned_zero"),
        attribute<Self, &Self::block_size>("block_size"),
        attribute<Self, &Self::gradient_rule>("gradient")};
    return kTable;
  }

 private:
  cpu::AffineLayout layout(const Dims& sizes, const Dims& shape, MemoryFormat format) const {
    return quanta::detail::affine_layout(kOp, "scale", sizes, shape, block_size, format);
  }
};

}  // namespace

Tensor float_quantize_dequantize(const Tensor& x, const Tensor& scale, const FloatSpec& spec,
                                 const Dims& block_size, FloatGradient gradient) {
  return run(FloatQuantization{spec, block_size, gradient}, x, scale);
}

// Encoding ---------------------------------------------------------------------------------------

FloatEncoding::FloatEncoding(Tensor scale, const FloatSpec& spec, Dims block_size)
    : Encoding("FloatEncoding", std::move(scale), std::move(block_size)), spec_(spec) {
  spec.max();
}

std::shared_ptr<const FloatEncoding> FloatEncoding::nvfp4(Tensor scale, Tensor meta_scale,
                                                          Dims block_size) {
  QUANTA_CHECK(meta_scale.defined() && meta_scale.is_floating_point() && meta_scale.numel() == 1 &&
                   meta_scale.item() > 0.0,
               "FloatEncoding.nvfp4: meta_scale: expected one number > 0, got {}",
               meta_scale.defined() ? quanta::to_string(meta_scale.sizes()) : "an undefined one");
  const auto meta = static_cast<float>(meta_scale.item());
  for (const float value : scale.detach().to_float_vector()) {
    const float rounded = math::round_to_format(value / meta, math::kE4M3FN) * meta;
    QUANTA_CHECK(std::fabs(rounded - value) <= 1e-6F * std::fabs(value),
                 "FloatEncoding.nvfp4: scale: expected float8_e4m3fn numbers times {}, got {}",
                 meta, value);
  }
  auto encoding = std::make_shared<FloatEncoding>(
      std::move(scale), FloatSpec::from_name("float4_e2m1fn"), std::move(block_size));
  encoding->meta_scale_ = std::move(meta_scale);
  return encoding;
}

Tensor FloatEncoding::maxval() const { return mul_scalar(scale_, spec_.max()); }

bool FloatEncoding::is_mxfp4() const {
  if (!(spec_ == FloatSpec::from_name("float4_e2m1fn"))) return false;
  const std::vector<float> scales = scale_.detach().to_float_vector();
  return std::all_of(scales.begin(), scales.end(), [](float scale) {
    int exponent = 0;
    return scale > 0.0F && std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5F &&
           exponent - 1 >= -127;
  });
}

Tensor FloatEncoding::quantize(const Tensor& x) const {
  autograd::require_no_grad("FloatEncoding.quantize", x);
  const Tensor scale = scale_.detach().to(DType::Float32).contiguous();
  const Tensor src = x.to(DType::Float32).contiguous();
  const cpu::AffineLayout layout = quanta::detail::affine_layout(
      "FloatEncoding.quantize", "scale", x.sizes(), scale.sizes(), block_size_);
  Tensor steps = Tensor::empty(x.sizes());
  const auto* from = src.data<float>();
  const auto* scales = scale.data<float>();
  auto* to = static_cast<float*>(steps.data_ptr());
  for_each_scaled(layout, [&](std::int64_t i, std::int64_t p) { to[i] = from[i] / scales[p]; });
  return float_quantize_dequantize(steps, Tensor::scalar(1.0), spec_).to(x.dtype());
}

Tensor FloatEncoding::dequantize(const Tensor& codes) const {
  const Tensor scale = scale_.to(codes.dtype());
  AffineOptions options;
  options.block_size = block_size_;
  return dequantize_affine(codes, scale, Tensor::zeros(scale.sizes(), scale.dtype()), options);
}

DType FloatEncoding::integer_dtype() const {
  throw ArgumentError(with_module_path(fmt::format(
      "FloatEncoding: quantized_repr: expected an affine encoding (codes of {} are no integers), "
      "got a float one",
      spec_.name())));
}

EncodingPtr FloatEncoding::scaled_by(double factor) const {
  if (factor == 0.0 || !std::isfinite(factor)) return nullptr;
  auto scaled =
      std::make_shared<FloatEncoding>(mul_scalar(scale_, std::fabs(factor)), spec_, block_size_);
  if (meta_scale_.defined()) scaled->meta_scale_ = mul_scalar(meta_scale_, std::fabs(factor));
  return scaled;
}

EncodingPtr FloatEncoding::to(DType dtype) const {
  QUANTA_CHECK(quanta::is_floating_point(dtype),
               "Encoding.to: dtype: expected a floating dtype, got {}", dtype);
  auto converted = std::make_shared<FloatEncoding>(scale_.to(dtype), spec_, block_size_);
  if (meta_scale_.defined()) converted->meta_scale_ = meta_scale_.to(dtype);
  return converted;
}

// Quantizer --------------------------------------------------------------------------------------

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
      gradient_(options.gradient),
      maxval_(Tensor::full(options.shape, spec_.max())) {}

std::shared_ptr<Quantizer> FloatQuantizeDequantize::clone() const {
  auto copy = std::make_shared<FloatQuantizeDequantize>(*this);
  if (maxval_.defined()) copy->maxval_ = maxval_.clone();
  return copy;
}

Tensor FloatQuantizeDequantize::scale_of(const Tensor& maxval) const {
  const float log_max = std::log2(static_cast<float>(spec_.max()));
  const bool whole = power_of_two_scale_;
  return detail::map_two(maxval, maxval, [log_max, whole](float value, float) {
    const float exponent = std::log2(std::fabs(value)) - log_max;
    return std::exp2(whole ? math::round_half_even(exponent) : exponent);
  });
}

Tensor FloatQuantizeDequantize::get_scale() const {
  return maxval_.defined() ? scale_of(maxval_) : Tensor::ones(shape_);
}

void FloatQuantizeDequantize::set_maxval(const Tensor& maxval) {
  QUANTA_CHECK(maxval.defined() && maxval.is_floating_point() &&
                   quanta::detail::broadcasts_to(maxval.sizes(), shape_),
               "{}: maxval: expected a floating tensor that can be expanded to {}, got {}", kName,
               shape_, maxval.defined() ? quanta::to_string(maxval.sizes()) : "an undefined one");
  for (const float value : maxval.detach().to_float_vector()) {
    QUANTA_CHECK(value > 0.0F, "{}: maxval: expected numbers > 0, got {}", kName, value);
  }
  maxval_ = maxval.detach().to(DType::Float32).expand(shape_).clone(MemoryFormat::Contiguous);
}

EncodingPtr FloatQuantizeDequantize::encoding() const {
  return std::make_shared<FloatEncoding>(get_scale(), spec_, block_size_);
}

Range FloatQuantizeDequantize::range_of_batch(const Tensor& x) const {
  return analyzer_->compute_range_of(x, (std::int64_t{1} << bitwidth()) - 1, false);
}

Range FloatQuantizeDequantize::range_of_all() const {
  return analyzer_->compute_range((std::int64_t{1} << bitwidth()) - 1, false);
}

EncodingPtr FloatQuantizeDequantize::encoding_of(const Range& range) const {
  const Tensor maxval = largest_magnitude(range).expand(shape_).contiguous();
  return std::make_shared<FloatEncoding>(scale_of(maxval), spec_, block_size_);
}

void FloatQuantizeDequantize::take_range(const Range& range) {
  maxval_ = largest_magnitude(range).expand(shape_).clone(MemoryFormat::Contiguous);
}

EncodedTensor FloatQuantizeDequantize::apply(const Tensor& x, const EncodingPtr& encoding) const {
  if (!x.is_floating_point()) return x;
  return {
      float_quantize_dequantize(x, encoding->scale().to(x.device()), spec_, block_size_, gradient_),
      EncodedTensor::Kind::Dequantized, encoding};
}

std::string FloatQuantizeDequantize::to_string() const {
  std::string text =
      spec_.is_builtin()
          ? fmt::format("dtype=torch.{}", spec_.name())
          : fmt::format("exponent_bits={}, mantissa_bits={}, finite={}, unsigned_zero={}",
                        spec_.exponent_bits, spec_.mantissa_bits, spec_.finite ? "True" : "False",
                        spec_.unsigned_zero ? "True" : "False");
  if (!shape_.empty()) text += ", shape=" + detail::tuple_text(shape_);
  if (!block_size_.empty()) text += ", block_size=" + detail::tuple_text(block_size_);
  return fmt::format("{}({})", kName, text);
}

void FloatQuantizeDequantize::save_state(StateDict& state, const std::string& prefix) const {
  if (maxval_.defined()) state.set(prefix + "maxval", maxval_);
  detail::save_number(state, prefix, "exponent_bits", static_cast<double>(spec_.exponent_bits));
  detail::save_number(state, prefix, "mantissa_bits", static_cast<double>(spec_.mantissa_bits));
  detail::save_number(state, prefix, "finite", spec_.finite ? 1.0 : 0.0);
  detail::save_number(state, prefix, "unsigned_zero", spec_.unsigned_zero ? 1.0 : 0.0);
  detail::save_dims(state, prefix, "block_size", block_size_);
}

void FloatQuantizeDequantize::load_state(const StateDict& state, const std::string& prefix) {
  const FloatSpec spec{detail::read_integer(state, prefix, "exponent_bits"),
                       detail::read_integer(state, prefix, "mantissa_bits"),
                       detail::read_number(state, prefix, "finite") != 0.0,
                       detail::read_number(state, prefix, "unsigned_zero") != 0.0};
  spec.max();
  const Dims blocks = detail::read_dims(state, prefix, "block_size");
  Tensor maxval;
  if (state.contains(prefix + "maxval")) maxval = detail::read_floats(state, prefix + "maxval");
  const Dims shape = maxval.defined() ? maxval.sizes() : shape_;
  QUANTA_CHECK(blocks.empty() || blocks.size() == shape.size(),
               "load_state: {}: expected one entry for each dimension of {}, got {}",
               detail::extra_name(prefix, "block_size"), shape, blocks);
  if (analyzer_ != nullptr && (shape != shape_ || !(blocks == block_size_))) {
    analyzer_ = std::make_shared<MinMaxAnalyzer>(shape, blocks);
  }
  spec_ = spec;
  block_size_ = blocks;
  shape_ = shape;
  maxval_ = maxval;
}

}  // namespace quanta::aimet
