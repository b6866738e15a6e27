#include "quanta/observers/aimet/float_encoding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

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
  static constexpr std::array<std::string_view, 2> kNames{"StraightThrough", "Aimet"};
  return kNames;
}

namespace {

using autograd::BackwardContext;

constexpr std::string_view kOp = "float_quantize_dequantize";

void check_x(const Tensor& x) {
  QUANTA_CHECK(x.defined() && (x.dtype() == DType::Float32 || x.dtype() == DType::Float64 ||
                               x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16),
               "{}: x: expected Float32, Float64, Float16 or BFloat16, got {}", kOp,
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
  const Tensor cast = fake_cast_to_ieee_float(scaled, spec.full_max(), spec.exponent_bits,
                                              spec.mantissa_bits, spec.finite);
  const auto* rounded = cast.data<float>();
  for_each_scaled(layout, [&](std::int64_t i, std::int64_t p) { to[i] = rounded[i] * scales[p]; });
  return scaled;
}

// The codes of x / scale in float64, of which the cast takes float32; times `scale` where asked.
enum class Unit : bool { Codes, Values };

Tensor in_double(const Tensor& x, const Tensor& scale, const FloatSpec& spec,
                 const cpu::AffineLayout& layout, Unit unit) {
  const auto max = spec.max();
  const Tensor scales = scale.to(DType::Float64).contiguous();
  const Tensor scaled = Tensor::empty(x.sizes());
  const auto* from = x.data<double>();
  const auto* steps = scales.data<double>();
  auto* to = static_cast<float*>(scaled.data_ptr());
  for_each_scaled(layout, [&](std::int64_t i, std::int64_t p) {
    to[i] = static_cast<float>(math::clamp(from[i] / steps[p], -max, max));
  });
  const std::optional<math::FloatFormat> grid = spec.grid();
  const Tensor cast = grid.has_value()
                          ? scaled
                          : fake_cast_to_ieee_float(scaled, spec.full_max(), spec.exponent_bits,
                                                    spec.mantissa_bits, spec.finite);
  const Tensor result = Tensor::empty(x.sizes(), DType::Float64);
  const auto* codes = cast.data<float>();
  auto* values = static_cast<double*>(result.data_ptr());
  for_each_scaled(layout, [&](std::int64_t i, std::int64_t p) {
    const float code = grid.has_value() ? math::round_to_format(codes[i], *grid) : codes[i];
    values[i] = static_cast<double>(code) * (unit == Unit::Values ? steps[p] : 1.0);
  });
  return result;
}

// Arguments: x, scale.
struct FloatQuantization final : Op<FloatQuantization> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{2};
  FloatSpec spec;
  Dims block_size;
  FloatGradient gradient_rule = FloatGradient::StraightThrough;

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
    const bool has_kernel = spec.grid().has_value() && x.dtype() != DType::Float64;
    const MemoryFormat format = has_kernel ? x.suggested_format() : MemoryFormat::Contiguous;
    layout(x.sizes(), scale.sizes(), format);
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const std::optional<math::FloatFormat> grid = spec.grid();
    if (in[0].dtype() == DType::Float64) {
      const cpu::AffineLayout rows = layout(in[0].sizes(), in[1].sizes(), MemoryFormat::Contiguous);
      copy_result(in_double(in[0], in[1], spec, rows, Unit::Values), out[0]);
      return "scalar";
    }
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
  /// Aimet's takes the way of the values: it is rounded to the format as well.
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    if (gradient_rule == FloatGradient::StraightThrough &&
        context.input(0).dtype() == DType::Float64) {
      return {straight_in_double(context), {}};
    }
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
      // What torch's conversions do: this one has no infinity and saturates.
      const bool saturates = spec == FloatSpec{4, 3, true, false};
      const auto overflow = saturates ? math::Overflow::Saturate : math::Overflow::Special;
      for_each_scaled(layout(x.sizes(), scale.sizes(), MemoryFormat::Contiguous),
                      [&](std::int64_t i, std::int64_t p) {
                        const float magnitude = std::fabs(values[i] / scales[p]);
                        if (straight) {
                          if (magnitude <= max) to[i] = upstream[i];
                        } else if (magnitude < max) {  // torch's clamp passes nothing at its ends
                          to[i] = math::round_to_format(upstream[i] * scales[p], *grid, overflow) /
                                  scales[p];
                        }
                      });
    }
    return {x_grad.to(context.input_dtype(0)), {}};
  }

  Tensor straight_in_double(const BackwardContext& context) const {
    const Tensor x = context.input(0).contiguous();
    const Tensor scale = context.input(1).to(DType::Float64).contiguous();
    const Tensor grad = context.grad().contiguous();
    const Tensor x_grad = Tensor::zeros(x.sizes(), DType::Float64);
    const auto* values = x.data<double>();
    const auto* scales = scale.data<double>();
    const auto* upstream = grad.data<double>();
    auto* to = static_cast<double*>(x_grad.data_ptr());
    const double max = spec.max();
    for_each_scaled(layout(x.sizes(), scale.sizes(), MemoryFormat::Contiguous),
                    [&](std::int64_t i, std::int64_t p) {
                      if (std::fabs(values[i] / scales[p]) <= max) to[i] = upstream[i];
                    });
    return x_grad;
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

Tensor FloatEncoding::offset() const { return Tensor::zeros(scale_.sizes(), scale_.dtype()); }

Tensor FloatEncoding::min() const { return mul_scalar(scale_, -spec_.max()); }

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
  if (x.dtype() == DType::Float64) {
    const cpu::AffineLayout rows = quanta::detail::affine_layout(
        "FloatEncoding.quantize", "scale", x.sizes(), scale_.sizes(), block_size_);
    return in_double(x.contiguous(), scale_.detach(), spec_, rows, Unit::Codes);
  }
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

}  // namespace quanta::aimet
