#include <cmath>

#include "quanta/ops/activation.h"
#include "quanta/ops/activation/cuda_prelu.h"
#include "quanta/ops/activation/families.h"
#include "quanta/ops/activation/pointwise.h"
#include "quanta/ops/activation/prelu_functions.h"
#include "quanta/ops/detail/dtypes.h"

namespace quanta {
namespace activation {
namespace {

// The weight as a tensor that broadcasts against x: one value, or one along dimension 1.
Tensor prelu_weight(std::string_view op, const Tensor& x, const Tensor& weight) {
  const std::int64_t channels = x.dim() < 2 ? 1 : x.size(1);
  QUANTA_CHECK(weight.numel() == 1 || (weight.dim() == 1 && weight.numel() == channels),
               "{}: weight: expected 1 value or {}, one for each index of dim 1 of x {}, got {}",
               op, channels, x.sizes(), weight.sizes());
  if (weight.numel() == 1) return weight.reshape(x.dim() == 0 ? Dims{} : Dims{1});
  Dims sizes = Dims::filled(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = channels;
  return weight.reshape(sizes);
}

void prelu_int32(const QTensor& x, const QTensor& weight, const QTensor& out, std::int64_t one,
                 float multiplier) {
  const auto x_zero = std::int64_t{x.quantizer().zero_point};
  const auto weight_zero = std::int64_t{weight.quantizer().zero_point};
  const std::int64_t zero_point = out.quantizer().zero_point;
  cpu::broadcast_binary<std::int32_t>(
      x, weight, out,
      [&](const std::int32_t* codes, const std::int32_t* weights, std::int32_t* dst,
          std::int64_t count, cpu::Rhs kind, cpu::Store) {
        const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t difference = codes[i] - x_zero;
          const std::int64_t slope = difference > 0 ? one : weights[i * step] - weight_zero;
          dst[i] = math::requantize_qint32(cpu::saturating_product(difference, slope), multiplier,
                                           zero_point);
        }
      });
}

template <typename T>
void prelu_codes(const QTensor& x, const QTensor& weight, const QTensor& out,
                 const cpu::PReluArgs& args) {
  cpu::broadcast_binary<T>(
      x, weight, out,
      [&](const T* codes, const T* weights, T* dst, std::int64_t count, cpu::Rhs kind, cpu::Store) {
        cpu::prelu(codes, weights, dst, count, args, kind);
      },
      [&](const T* codes, const T* weights, T* dst, std::int64_t rows, std::int64_t channels) {
        cpu::prelu_channels(codes, weights, dst, rows, channels, args);
      });
}

// How a product of differences becomes a code.
struct CodeScales {
  std::int32_t code_of_one;
  float multiplier;
};

CodeScales scales_of(const QTensor& x, const QTensor& weight, const cpu::ScalarQuantizer& out) {
  // What 1.0 is in the weight's own parameters (it saturates when they do not reach so far), so
  // that both sides have the same scale.
  return {cpu::ScalarQuantizer(weight)(1.0F), static_cast<float>(x.quantizer().scale) *
                                                  static_cast<float>(weight.quantizer().scale) *
                                                  out.inv_scale};
}

cpu::PReluArgs byte_args(const QTensor& x, const QTensor& weight, const QTensor& out) {
  const cpu::ScalarQuantizer quantizer(out);
  const CodeScales scales = scales_of(x, weight, quantizer);
  const auto weight_zero = static_cast<std::int32_t>(weight.quantizer().zero_point);
  cpu::PReluArgs args{static_cast<std::int32_t>(x.quantizer().zero_point), weight_zero,
                      scales.code_of_one - weight_zero, quantizer.args()};
  args.out.inv_scale = scales.multiplier;
  return args;
}

void prelu_to(const QTensor& x, const QTensor& weight, const QTensor& out) {
  if (x.dtype() == DType::QInt32) {
    const CodeScales scales = scales_of(x, weight, cpu::ScalarQuantizer(out));
    prelu_int32(x, weight, out,
                std::int64_t{scales.code_of_one} - std::int64_t{weight.quantizer().zero_point},
                scales.multiplier);
    return;
  }
  const cpu::PReluArgs args = byte_args(x, weight, out);
  if (x.dtype() == DType::QUInt8) {
    prelu_codes<std::uint8_t>(x, weight, out, args);
  } else {
    prelu_codes<std::int8_t>(x, weight, out, args);
  }
}

// A step of floats on a CUDA device; the weight broadcasts against x.
void prelu_on_cuda(cuda::PReluStep step, const Tensor& x, const Tensor& weight,
                   const Tensor& gradient, const Tensor& out) {
  const Dims& sizes = out.sizes();
  const Dims weight_strides = cpu::broadcast_strides(weight, sizes);
  const Tensor& last = gradient.defined() ? gradient : x;
  cuda::prelu_floats(
      out.device(),
      {.step = step,
       .is_double = out.dtype() == DType::Float64,
       .walk = {sizes, {&out.strides(), &x.strides(), &weight_strides, &last.strides()}},
       .x = x.device_ptr(),
       .weight = weight.device_ptr(),
       .gradient = gradient.defined() ? gradient.device_ptr() : nullptr,
       .out = out.device_ptr()});
}

// What prelu_slope gives for each element, in the memory order of x.
Tensor input_gradient(const Tensor& gradient, const Tensor& x, const Tensor& weight) {
  const MemoryFormat format = x.suggested_format();
  Tensor out = Tensor::empty(x.sizes(), x.dtype(), format, x.device());
  if (x.device().is_cuda()) {
    prelu_on_cuda(cuda::PReluStep::InputGradient, x, weight, gradient, out);
    return out;
  }
  const Tensor slope = weight.expand(x.sizes()).contiguous(format);
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* slopes = static_cast<const T*>(slope.data_ptr());
    auto* const first = static_cast<T*>(out.data_ptr());
    detail::for_each_pair<T>(gradient, x, out,
                             [&](const T* gradients, const T* values, T* dst, std::int64_t count) {
                               const T* const own = slopes + (dst - first);
                               for (std::int64_t i = 0; i < count; ++i) {
                                 dst[i] = prelu_slope(gradients[i], values[i], own[i]);
                               }
                             });
  });
  return out;
}

// What prelu_weight_slope gives for each element.
Tensor weight_gradient(const Tensor& gradient, const Tensor& x, const Tensor& weight) {
  if (x.device().is_cuda()) {
    Tensor out = Tensor::empty(x.sizes(), x.dtype(), x.suggested_format(), x.device());
    prelu_on_cuda(cuda::PReluStep::WeightGradient, x, weight, gradient, out);
    return out;
  }
  return detail::map_pair(gradient, x,
                          [](auto g, auto value) { return prelu_weight_slope(g, value); });
}

struct PReLU final : Op<PReLU> {
  static constexpr std::string_view kName = "prelu";
  static constexpr ArgumentCount kArguments{2};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const Tensor& weight = in[1];
    check_float_unary(kName, x);
    QUANTA_CHECK(weight.defined() && weight.dtype() == x.dtype(),
                 "prelu: weight: expected a {} tensor, got {}", x.dtype(),
                 weight.defined() ? to_string(weight.dtype()) : "an undefined one");
    prelu_weight(kName, x, weight);
    out.add(x.sizes(), x.dtype(), x.suggested_format());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor slope = prelu_weight(kName, in[0], in[1]);
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      cpu::broadcast_binary<T>(in[0], slope, out[0],
                               [](const T* values, const T* slopes, T* dst, std::int64_t count,
                                  cpu::Rhs kind, cpu::Store) {
                                 const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
                                 for (std::int64_t i = 0; i < count; ++i) {
                                   dst[i] = prelu_value(values[i], slopes[i * step]);
                                 }
                               });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    prelu_on_cuda(cuda::PReluStep::Value, in[0], prelu_weight(kName, in[0], in[1]), Tensor(),
                  out[0]);
    return "prelu_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b11); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor x = context.input(0);
    const Tensor slope = prelu_weight(kName, x, context.input(1));
    std::vector<Tensor> results(2);
    if (context.needs(0)) results[0] = input_gradient(context.grad(), x, slope);
    if (context.needs(1)) {
      const Tensor each = weight_gradient(context.grad(), x, slope);
      results[1] = autograd::sum_to_size(each, slope.sizes()).reshape(context.input_sizes(1));
    }
    return results;
  }
};

struct QuantizedPReLU final : Op<QuantizedPReLU> {
  static constexpr std::string_view kName = "quantized::prelu";
  static constexpr ArgumentCount kArguments{2};
  static constexpr bool kWorksByRows = true;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  QuantizedPReLU() = default;
  QuantizedPReLU(double scale_out, std::int64_t zero_point_out)
      : scale(scale_out), zero_point(zero_point_out) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    cpu::check_per_tensor(kName, "x", x);
    cpu::check_per_tensor(kName, "weight", in[1]);
    QUANTA_CHECK(in[1].dtype() == x.dtype(), "{}: weight: expected {} as x has, got {}", kName,
                 x.dtype(), in[1].dtype());
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, x.dtype(), x.sizes());
    prelu_weight(kName, x, in[1]);
    out.add(x.sizes(), x.dtype(), quantizer, x.suggested_format());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    prelu_to(QTensor(in[0]), QTensor(prelu_weight(kName, in[0], in[1])), QTensor(out[0]));
    return in[0].dtype() == DType::QInt32 ? "scalar" : "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const QTensor weight(prelu_weight(kName, in[0], in[1]));
    const cpu::PReluArgs args = byte_args(QTensor(in[0]), weight, QTensor(out[0]));
    const Dims weight_strides = cpu::broadcast_strides(weight, out[0].sizes());
    cuda::prelu_codes(
        out[0].device(),
        {.is_signed = out[0].dtype() == DType::QInt8,
         .walk = {out[0].sizes(), {&out[0].strides(), &in[0].strides(), &weight_strides}},
         .x = in[0].device_ptr(),
         .weight = weight.device_ptr(),
         .out = out[0].device_ptr(),
         .x_zero_point = args.lhs_zero_point,
         .weight_zero_point = args.rhs_zero_point,
         .one = args.one,
         .multiplier = args.out.inv_scale,
         .zero_point = args.out.zero_point,
         .low = args.out.min,
         .high = args.out.max});
    return "prelu_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizedPReLU, &QuantizedPReLU::scale>("scale"),
        attribute<QuantizedPReLU, &QuantizedPReLU::zero_point>("zero_point")};
    return kTable;
  }
};

constexpr std::string_view kHeader = "quanta/ops/activation.h";

}  // namespace

void add_prelu(Catalogue& catalogue) {
  catalogue.add({.name = PReLU::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(
                      PReLU{}, {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({3}, dtype, 2)});
                });
  catalogue.add(
      {.name = QuantizedPReLU::kName, .header = kHeader, .dtypes = dtypes::kQ}, [](DType dtype) {
        return sample_call(QuantizedPReLU{0.04, 9},
                           {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({3}, dtype, 2)});
      });
}

}  // namespace activation

Tensor prelu(const Tensor& x, const Tensor& weight) { return run(activation::PReLU{}, x, weight); }

QTensor quantized::prelu(const QTensor& x, const QTensor& weight, double scale,
                         std::int64_t zero_point) {
  return QTensor(run(activation::QuantizedPReLU{scale, zero_point}, x, weight));
}

}  // namespace quanta
