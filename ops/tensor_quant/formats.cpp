// Quantizers of float formats, and clip.

#include "quanta/ops/tensor_quant/formats.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/amax.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/meta.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/ops/tensor_quant/clip_functions.h"
#include "quanta/ops/tensor_quant/cuda_clip.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using autograd::BackwardContext;
using clipping::ClipStep;
using detail::amax_values;
using detail::AmaxOperation;
using detail::AmaxStep;
using detail::check_amax;
using detail::check_quantizable;
using detail::map_amax;
using detail::OnBothDevices;

// A Float32 number where `x` is.
Tensor scalar_like(const Tensor& x, double value) { return Tensor::scalar(value).to(x.device()); }

// Elements as multiples of scales.
void write_fp4(const Tensor& x, const Tensor& scales, const Tensor& out) {
  map_amax({.step = AmaxStep::StaticFp4}, x, scales, out);
}

// Arguments: x, low, high.
struct Clip final : Op<Clip> {
  static constexpr std::string_view kName = "clip";
  static constexpr ArgumentCount kArguments{3};

  void infer(const Arguments& in, Results& out) const override {
    detail::check_floats(kName, "x", in[0]);
    check_bound(in[0], "low", in[1]);
    check_bound(in[0], "high", in[2]);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor low = expanded(in[1], in[0].sizes());
    const Tensor high = expanded(in[2], in[0].sizes());
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto *src = in[0].data<T>(), *lowest = low.data<T>(), *highest = high.data<T>();
      auto* dst = static_cast<T*>(out[0].data_ptr());
      cpu::parallel_elements(in[0].numel(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          dst[i] = clipping::clip_value(src[i], lowest[i], highest[i]);
        }
      });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    step_on_cuda(ClipStep::Value, in[0], in[1], in[2], Tensor(), out[0]);
    return "clip_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b111); }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const auto of_bound = [&](std::size_t i, ClipStep step) {
      return context.needs(i) ? sum_to(passed(context, step), context.input_sizes(i)) : Tensor();
    };
    return {passed(context, ClipStep::InputGradient), of_bound(1, ClipStep::LowGradient),
            of_bound(2, ClipStep::HighGradient)};
  }

 private:
  static void check_bound(const Tensor& x, std::string_view argument, const Tensor& bound) {
    QUANTA_CHECK(bound.defined(), "{}: {}: expected a tensor, got an undefined one", kName,
                 argument);
    QUANTA_CHECK(bound.dtype() == x.dtype(), "{}: {}: expected {} as x, got {}", kName, argument,
                 x.dtype(), bound.dtype());
    QUANTA_CHECK(
        bound.numel() == 1 || broadcast_sizes(x.sizes(), bound.sizes(), kName) == x.sizes(),
        "{}: {}: expected sizes that broadcast to {}, got {}", kName, argument, x.sizes(),
        bound.sizes());
  }
  static Tensor scalar_or_bound(const Tensor& bound) {
    return bound.numel() == 1 ? bound.reshape({}) : bound;
  }
  static Tensor expanded(const Tensor& bound, const Dims& sizes) {
    return scalar_or_bound(bound).expand(sizes).contiguous();
  }
  static void step_on_cuda(ClipStep step, const Tensor& x, const Tensor& low, const Tensor& high,
                           const Tensor& gradient, const Tensor& out) {
    const Dims& sizes = out.sizes();
    const Dims low_strides = cpu::broadcast_strides(scalar_or_bound(low), sizes);
    const Dims high_strides = cpu::broadcast_strides(scalar_or_bound(high), sizes);
    const Tensor& last = gradient.defined() ? gradient : x;
    cuda::clip_floats(
        out.device(),
        {.step = step,
         .is_double = out.dtype() == DType::Float64,
         .walk = {sizes,
                  {&out.strides(), &x.strides(), &low_strides, &high_strides, &last.strides()}},
         .x = x.device_ptr(),
         .low = low.device_ptr(),
         .high = high.device_ptr(),
         .gradient = gradient.defined() ? gradient.device_ptr() : nullptr,
         .out = out.device_ptr()});
  }
  // The gradient where it goes to the step's argument, else 0; contiguous.
  static Tensor passed(const BackwardContext& context, ClipStep step) {
    const Tensor given = context.input(0);
    const Tensor result =
        Tensor::empty(given.sizes(), given.dtype(), MemoryFormat::Contiguous, given.device());
    if (given.device().is_cuda()) {
      step_on_cuda(step, given, context.input(1), context.input(2), context.grad(), result);
      return result;
    }
    const Tensor x = given.contiguous();
    const Tensor low = expanded(context.input(1), x.sizes());
    const Tensor high = expanded(context.input(2), x.sizes());
    const Tensor gradient = context.grad().contiguous();
    detail::visit_floats(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto *from = gradient.data<T>(), *at = x.data<T>();
      const auto *lowest = low.data<T>(), *highest = high.data<T>();
      auto* dst = static_cast<T*>(result.data_ptr());
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        dst[i] = clipping::clip_passes(step, at[i], lowest[i], highest[i]) ? from[i] : T{0};
      }
    });
    return result;
  }
  // One number may have more dimensions than x.
  static Tensor sum_to(const Tensor& each, const Dims& sizes) {
    if (product(sizes) == 1) return autograd::sum_to_size(each, {}).reshape(sizes);
    return autograd::sum_to_size(each, sizes);
  }
};

// Arguments: x, and amax and a bias that may be left out.
struct ScaledE4M3 final : AmaxOperation<ScaledE4M3> {
  static constexpr std::string_view kName = "scaled_e4m3";
  static constexpr ArgumentCount kArguments{3};
  static constexpr bool kLearnsAmax = true;
  GradientRule gradient_rule = GradientRule::Clip;
  std::int64_t exponent_bits = 4;
  std::int64_t mantissa_bits = 3;

  ScaledE4M3() = default;
  explicit ScaledE4M3(const ScaledE4M3Options& options)
      : gradient_rule(options.gradient),
        exponent_bits(options.exponent_bits),
        mantissa_bits(options.mantissa_bits) {}
  GradientRule rule() const { return gradient_rule; }
  void infer(const Arguments& in, Results& out) const override {
    QUANTA_SUPPORTED(exponent_bits == 4 && mantissa_bits == 3,
                     "scaled_e4m3: exponent_bits: expected E4M3, got E{}M{}", exponent_bits,
                     mantissa_bits);
    check_quantizable(kName, in[0]);
    detail::check_bias(kName, in[0], in[2]);
    if (in[1].defined()) check_amax(kName, in[0].sizes(), in[1]);
    infer_like(in[0], out);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    // Without amax numbers stay as they are: 448 / 448.
    const Tensor values = in[1].defined() ? amax_values(kName, in[1]) : scalar_like(in[0], 448.0);
    const Tensor seen = detail::without_bias(in[0], in[2]);
    detail::with_bias(seen, in[2], out[0], [&](const Tensor& y) {
      map_amax({.step = AmaxStep::ScaledE4M3}, seen, values, y);
    });
    return "simd";
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = ScaledE4M3;
    static constexpr std::array kTable{attribute<Self, &Self::gradient_rule>("gradient"),
                                       attribute<Self, &Self::exponent_bits>("exponent_bits"),
                                       attribute<Self, &Self::mantissa_bits>("mantissa_bits")};
    return kTable;
  }
};

struct Fp4Cast final : OnBothDevices<Fp4Cast> {
  static constexpr std::string_view kName = "fp4_cast_ste";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    check_quantizable(kName, in[0]);
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), in[0].dtype(), format);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    write_fp4(in[0], scalar_like(in[0], 1.0), out[0]);
    return "simd";
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(1); }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const Tensor& grad = context.grad();
    return {detail::gradient_within_amax(grad, context.input(0), scalar_like(grad, 6.0))};
  }
};

// Arguments: x, amax, and global_amax that may be left out.
struct StaticFp4 final : AmaxOperation<StaticFp4> {
  static constexpr std::string_view kName = "static_fp4";
  static constexpr ArgumentCount kArguments{3};
  static constexpr bool kLearnsAmax = true;
  Fp4ScaleOptions scale;
  GradientRule gradient_rule = GradientRule::Clip;

  StaticFp4() = default;
  explicit StaticFp4(const StaticFp4Options& options)
      : scale(options.scale), gradient_rule(options.gradient) {}
  GradientRule rule() const { return gradient_rule; }
  void infer(const Arguments& in, Results& out) const override {
    check_quantizable(kName, in[0]);
    check_amax(kName, in[0].sizes(), in[1]);
    infer_like(in[0], out);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    const Tensor scales = compute_fp4_scales(amax_values(kName, in[1]), in[2], scale);
    write_fp4(in[0], scales.contiguous(), out[0]);
    return "simd";
  }
  GradientUse gradient_use(std::uint64_t needed) const override {
    return AmaxOperation::gradient_use(needed & 0b011U);
  }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    return gradient_with_bias(context, Tensor());
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = StaticFp4;
    static constexpr std::array kTable{
        attribute<Self, &Self::scale, &Fp4ScaleOptions::quantize_block_scales>(
            "quantize_block_scales"),
        attribute<Self, &Self::scale, &Fp4ScaleOptions::fp8_max>("fp8_max"),
        attribute<Self, &Self::gradient_rule>("gradient")};
    return kTable;
  }
};

}  // namespace

Tensor clip(const Tensor& x, const Tensor& low, const Tensor& high) {
  return run(Clip{}, x, low, high);
}

Tensor scaled_e4m3(const Tensor& x, const Tensor& amax, const ScaledE4M3Options& options) {
  return run(ScaledE4M3{options}, x, amax, options.bias);
}

Tensor fp4_cast_ste(const Tensor& x) { return run(Fp4Cast{}, x); }

Tensor compute_fp4_scales(const Tensor& amax, const Tensor& global_amax,
                          const Fp4ScaleOptions& options) {
  constexpr std::string_view kOp = "compute_fp4_scales";
  QUANTA_CHECK(amax.defined(), "{}: amax: expected a tensor, got an undefined one", kOp);
  QUANTA_CHECK(options.fp8_max > 0.0 && options.fp8_max <= 448.0,
               "{}: fp8_max: expected a number above 0 and at most 448, got {}", kOp,
               options.fp8_max);
  check_amax(kOp, amax.sizes(), amax);
  autograd::require_no_grad(kOp, amax);
  const Tensor values = amax_values(kOp, amax);
  const Tensor scales = div(values, scalar_like(values, 6.0));
  if (!options.quantize_block_scales || values.numel() == 0) return scales;
  Tensor global = global_amax.defined()
                      ? global_amax.detach().to(DType::Float32)
                      : scalar_like(values, static_cast<double>(detail::largest_of(values)));
  QUANTA_CHECK(global.numel() == 1, "{}: global_amax: expected one element, got {}", kOp,
               global.sizes());
  global = div(mul(global, scalar_like(values, 448.0 / options.fp8_max)), scalar_like(values, 6.0));
  return scaled_e4m3(scales, global.reshape({}));
}

Tensor static_fp4(const Tensor& x, const Tensor& amax, const StaticFp4Options& options) {
  return run(StaticFp4{options}, x, amax, options.global_amax);
}

Tensor meta::scaled_e4m3(const Tensor& x, const Tensor& amax, const ScaledE4M3Options& options) {
  return detail::infer_meta(ScaledE4M3{options}, 0, x, amax, options.bias);
}

Tensor meta::static_fp4(const Tensor& x, const Tensor& amax, const StaticFp4Options& options) {
  return detail::infer_meta(StaticFp4{options}, 0, x, amax, options.global_amax);
}

// The catalogue --------------------------------------------------------------------------------

void tensor_quant_formats::add(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/tensor_quant.h";
  const auto add_row = [&](std::string_view name, SampleFunction sample) {
    catalogue.add({.name = name, .header = kHeader, .dtypes = dtypes::kFloating}, sample);
  };
  catalogue.add({.name = Clip::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(
                      Clip{}, {sample_tensor({2, 3, 5, 4}, dtype), Tensor::full({1}, -0.5, dtype),
                               Tensor::full({3, 1, 1}, 0.75, dtype)});
                });
  // With and without amax and bias.
  add_row(ScaledE4M3::kName, [](DType dtype) {
    const Tensor x = sample_tensor({2, 3, 5, 4}, dtype);
    if (dtype == DType::Float64) return sample_call(ScaledE4M3{}, {x, Tensor(), Tensor()});
    return sample_call(ScaledE4M3{{.gradient = GradientRule::Clip}},
                       {x, Tensor::full({3, 1, 1}, 1.5), Tensor::full({4}, 0.125, dtype)});
  });
  add_row(Fp4Cast::kName, [](DType dtype) {
    return sample_call(Fp4Cast{}, {sample_tensor({2, 3, 5, 4}, dtype)});
  });
  // With and without a factor for all blocks.
  add_row(StaticFp4::kName, [](DType dtype) {
    const bool has_global = dtype == DType::Float64;
    return sample_call(StaticFp4{{.gradient = GradientRule::Clip}},
                       {sample_tensor({3, 2, 16}, dtype), Tensor::full({3, 2, 1}, 1.5),
                        has_global ? Tensor::scalar(2.5) : Tensor()});
  });
}

}  // namespace quanta
