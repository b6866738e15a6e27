#include <array>
#include <cmath>
#include <utility>

#include "quanta/ops/cpu/gemm/sums_to_codes.h"
#include "quanta/ops/cpu/lookup.h"
#include "quanta/ops/detail/borrowed.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/packed_linear.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear/rows.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_memory.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/quant_math.h"

namespace quanta {
namespace linear_layers {
namespace {

using quantized::LinearPackedParams;

const cpu::LinearInt8& checked_kernel(const LinearPackedParams& packed) {
  QUANTA_CHECK(packed.defined(),
               "linear: packed: expected packed parameters, got empty LinearPackedParams");
  return packed.impl().kernel;
}

/// What follows the product.
enum class Activation : std::uint8_t { None, ReLU, LeakyReLU, Tanh };

std::span<const std::string_view> enumerators(Activation) {
  static constexpr std::array<std::string_view, 4> kNames{"None", "ReLU", "LeakyReLU", "Tanh"};
  return kNames;
}

struct QuantizedLinear final : Op<QuantizedLinear> {
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  detail::Borrowed<LinearPackedParams> packed;
  double scale = 1.0;
  std::int64_t zero_point = 0;
  Activation activation = Activation::None;
  double negative_slope = 0.0;  ///< of LeakyReLU
  /// Codes of the result are looked up in it. May be null.
  std::shared_ptr<const ByteTable> table;

  QuantizedLinear() = default;
  QuantizedLinear(const LinearPackedParams& params, double scale_out, std::int64_t zero_point_out,
                  Activation end, double slope = 0.0)
      : packed(params),
        scale(scale_out),
        zero_point(zero_point_out),
        activation(end),
        negative_slope(slope) {}

  std::string_view name() const noexcept override {
    switch (activation) {
      case Activation::None:
        break;
      case Activation::ReLU:
        return "quantized::linear_relu";
      case Activation::LeakyReLU:
        return "quantized::linear_leaky_relu";
      case Activation::Tanh:
        return "quantized::linear_tanh";
    }
    return "quantized::linear";
  }

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(std::isfinite(negative_slope),
                 "linear_leaky_relu: negative_slope: expected a finite number, got {}",
                 negative_slope);
    const cpu::LinearInt8& kernel = checked_kernel(*packed);
    QUANTA_CHECK(x.defined(), "linear: x: expected a tensor, got an undefined one");
    QUANTA_CHECK(x.dtype() == DType::QUInt8, "linear: x: expected QUInt8, got {}{}", x.dtype(),
                 x.is_quantized() ? "" : " (is a QuantStub missing?)");
    const QScheme scheme = x.impl()->quantizer.scheme;
    QUANTA_CHECK(!is_per_channel(scheme),
                 "linear: x: expected a tensor quantized per tensor, got {}", scheme);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer("linear", quantizer, DType::QUInt8, x.sizes());
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(output_sizes("linear", x, kernel.in_features(), kernel.out_features()), DType::QUInt8,
            quantizer);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const cpu::LinearInt8& kernel = packed->impl().kernel;
    const Quantizer& quantizer = in[0].impl()->quantizer;
    const cpu::CallQParams qparams{
        static_cast<float>(quantizer.scale), static_cast<std::int32_t>(quantizer.zero_point),
        static_cast<float>(scale), static_cast<std::int32_t>(zero_point)};
    const std::int64_t rows = in[0].numel() / kernel.in_features();
    const auto* src = static_cast<const std::uint8_t*>(in[0].data_ptr());
    auto* dst = static_cast<std::uint8_t*>(out[0].data_ptr());
    const std::string_view name = codes(kernel, rows, qparams, src, dst);
    if (table != nullptr) cpu::parallel_lookup(dst, dst, out[0].numel(), *table);
    return name;
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const cpu::LinearInt8& kernel = packed->impl().kernel;
    const Quantizer& quantizer = in[0].impl()->quantizer;
    detail::ProductCall call;
    call.qparams = {static_cast<float>(quantizer.scale),
                    static_cast<std::int32_t>(quantizer.zero_point), static_cast<float>(scale),
                    static_cast<std::int32_t>(zero_point)};
    call.relu = activation == Activation::ReLU;
    if (activation == Activation::LeakyReLU) {
      call.end = cuda::ProductEnd::Float;
      call.function = cuda::ProductFunction::LeakyReLU;
      call.negative_slope = static_cast<float>(negative_slope);
    } else if (activation == Activation::Tanh) {
      // The CPU's tanh is its library's, and the device has another one: the host says where codes
      // change.
      call.end = cuda::ProductEnd::Float;
      call.function = cuda::ProductFunction::Steps;
      call.code = [](float value, const cpu::CallQParams& result) {
        return math::quantize(std::tanh(value), math::inverse_scale(result.dst_scale),
                              result.dst_zero_point, 0, 255);
      };
    }
    call.table = table.get();
    const cpu::ConvShape shape{.batch = in[0].numel() / kernel.in_features(),
                               .in_channels = kernel.in_features(),
                               .out_channels = kernel.out_features()};
    packed->impl().on_cuda.run(in[0].device(), kernel.weight(), shape, call, in[0].device_ptr(),
                               out[0].device_ptr());
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return linear_work(in[0], out[0], packed->weight().nbytes());
  }

  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> looked_up) const override {
    auto result = std::make_shared<QuantizedLinear>(*this);
    result->table = std::move(looked_up);
    return result;
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = QuantizedLinear;
    static constexpr std::array kTable{
        read_only_attribute<Self, [](const Self& op) { return op.packed->weight(); }>("weight"),
        read_only_attribute<Self, [](const Self& op) { return op.packed->bias(); }>("bias"),
        attribute<Self, &Self::scale>("scale"),
        attribute<Self, &Self::zero_point>("zero_point"),
        attribute<Self, &Self::activation>("activation"),
        attribute<Self, &Self::negative_slope>("negative_slope"),
        read_only_attribute<Self, [](const Self& op) { return op.table; }>("table")};
    return kTable;
  }

 private:
  std::string_view codes(const cpu::LinearInt8& kernel, std::int64_t rows,
                         const cpu::CallQParams& qparams, const std::uint8_t* src,
                         std::uint8_t* dst) const {
    cpu::FloatFunction function;
    switch (activation) {
      case Activation::None:
        return kernel.codes(rows, qparams, cpu::SumOutput::Codes, src, dst);
      case Activation::ReLU:
        return kernel.codes(rows, qparams, cpu::SumOutput::CodesReLU, src, dst);
      case Activation::LeakyReLU:
        function = {cpu::FloatStep::LeakyReLU, static_cast<float>(negative_slope)};
        break;
      case Activation::Tanh:
        function.step = cpu::FloatStep::Tanh;
        break;
    }
    const cpu::Int8Sums sums = kernel.sums(rows, qparams.src_zero_point, src);
    cpu::sums_to_codes(sums, kernel.weight(), qparams, function, nullptr, rows,
                       kernel.out_features(), dst);
    return sums.kernel;
  }
};

template <Activation kActivation>
void add_linear(Catalogue& catalogue) {
  const auto sample = [](DType dtype) {
    const QTensor weight(sample_tensor({5, 4}, DType::QInt8, 2));
    const LinearPackedParams packed(weight, sample_tensor({5}, DType::Float32, 3));
    return sample_call(QuantizedLinear(packed, 0.2, 80, kActivation, 0.1),
                       {sample_tensor({3, 4}, dtype)});
  };
  catalogue.add({.name = QuantizedLinear({}, 1.0, 0, kActivation).name(),
                 .header = "quanta/ops/linear.h",
                 .dtypes = dtypes::kQUInt8},
                sample);
}

}  // namespace

void add_quantized(Catalogue& catalogue) {
  add_linear<Activation::None>(catalogue);
  add_linear<Activation::ReLU>(catalogue);
  add_linear<Activation::LeakyReLU>(catalogue);
  add_linear<Activation::Tanh>(catalogue);
}

}  // namespace linear_layers

namespace quantized {

using linear_layers::Activation;
using linear_layers::QuantizedLinear;

LinearPackedParams::LinearPackedParams(const QTensor& weight, const Tensor& bias) {
  linear_layers::check_weight(weight, bias, DType::QInt8);
  if (weight.is_per_channel()) {
    QUANTA_CHECK(weight.qscheme() == QScheme::PerChannelAffine,
                 "linear: weight: expected integer zero points, got {}", weight.qscheme());
    QUANTA_CHECK(weight.q_per_channel_axis() == 0,
                 "linear: weight: expected QInt8 quantized along axis 0, got {} along axis {}",
                 weight.dtype(), weight.q_per_channel_axis());
  }
  impl_ = std::make_shared<Impl>(cpu::QuantizedWeight(
      QTensor(detail::unshared(weight)),
      bias.defined() ? bias.clone(MemoryFormat::Contiguous) : bias, weight.sizes()[0]));
}

const QTensor& LinearPackedParams::weight() const {
  return linear_layers::checked_kernel(*this).weight().weight();
}
const Tensor& LinearPackedParams::bias() const {
  return linear_layers::checked_kernel(*this).weight().bias();
}

QTensor linear(const QTensor& x, const LinearPackedParams& packed, double scale,
               std::int64_t zero_point) {
  return QTensor(run(QuantizedLinear(packed, scale, zero_point, Activation::None), x));
}

QTensor linear_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point) {
  return QTensor(run(QuantizedLinear(packed, scale, zero_point, Activation::ReLU), x));
}

QTensor linear_leaky_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                          std::int64_t zero_point, double negative_slope) {
  return QTensor(
      run(QuantizedLinear(packed, scale, zero_point, Activation::LeakyReLU, negative_slope), x));
}

QTensor linear_tanh(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point) {
  return QTensor(run(QuantizedLinear(packed, scale, zero_point, Activation::Tanh), x));
}

}  // namespace quantized
}  // namespace quanta
