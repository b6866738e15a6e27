#include <cmath>

#include "quanta/ops/activation.h"
#include "quanta/ops/activation/families.h"
#include "quanta/ops/activation/pointwise.h"
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
  if (weight.numel() == 1) return weight.reshape({1});
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

void prelu_to(const QTensor& x, const QTensor& weight, const QTensor& out) {
  const cpu::ScalarQuantizer quantizer(out);
  const auto weight_zero = static_cast<std::int32_t>(weight.quantizer().zero_point);
  // What 1.0 is in the weight's own parameters (it saturates when they do not reach so far), so
  // that both sides have the same scale.
  const std::int32_t code_of_one = cpu::ScalarQuantizer(weight)(1.0F);
  const float multiplier = static_cast<float>(x.quantizer().scale) *
                           static_cast<float>(weight.quantizer().scale) * quantizer.inv_scale;
  if (x.dtype() == DType::QInt32) {
    prelu_int32(x, weight, out, std::int64_t{code_of_one} - weight_zero, multiplier);
    return;
  }
  cpu::PReluArgs args{static_cast<std::int32_t>(x.quantizer().zero_point), weight_zero,
                      code_of_one - weight_zero, quantizer.args()};
  args.out.inv_scale = multiplier;
  if (x.dtype() == DType::QUInt8) {
    prelu_codes<std::uint8_t>(x, weight, out, args);
  } else {
    prelu_codes<std::int8_t>(x, weight, out, args);
  }
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
                                   dst[i] =
                                       values[i] > T{0} ? values[i] : slopes[i * step] * values[i];
                                 }
                               });
    });
    return "scalar";
  }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b11); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor x = context.input(0);
    const Tensor slope = prelu_weight(kName, x, context.input(1));
    std::vector<Tensor> results(2);
    if (context.needs(0)) {
      const Tensor scaled =
          detail::map_pair(context.grad(), slope.expand(x.sizes()),
                           [](auto gradient, auto value) { return gradient * value; });
      const Tensor masked = detail::map_pair(context.grad(), x, [](auto gradient, auto value) {
        return value > decltype(value){0} ? gradient : decltype(value){0};
      });
      const Tensor rest = detail::map_pair(scaled, x, [](auto gradient, auto value) {
        return value > decltype(value){0} ? decltype(value){0} : gradient;
      });
      results[0] = detail::map_pair(masked, rest, [](auto a, auto b) { return a + b; });
    }
    if (context.needs(1)) {
      const Tensor each = detail::map_pair(context.grad(), x, [](auto gradient, auto value) {
        return value > decltype(value){0} ? decltype(value){0} : gradient * value;
      });
      results[1] = autograd::sum_to_size(each, slope.sizes()).reshape(context.input_sizes(1));
    }
    return results;
  }
};

struct QuantizedPReLU final : Op<QuantizedPReLU> {
  static constexpr std::string_view kName = "quantized::prelu";
  static constexpr ArgumentCount kArguments{2};
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
