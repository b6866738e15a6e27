#include "quanta/ops/linear.h"

#include <cmath>
#include <utility>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/gemm/sums_to_codes.h"
#include "quanta/ops/cpu/onednn/linear_float.h"
#include "quanta/ops/detail/packed_linear.h"
#include "quanta/ops/linear/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_memory.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

void check_weight(const Tensor& weight, const Tensor& bias, DType dtype) {
  QUANTA_CHECK(weight.defined(), "linear: weight: expected a tensor, got an undefined one");
  QUANTA_CHECK(weight.dtype() == dtype, "linear: weight: expected {}, got {}", dtype,
               weight.dtype());
  QUANTA_CHECK(weight.dim() == 2 && weight.numel() > 0,
               "linear: weight: expected sizes [N, K] of 1 or more, got {}", weight.sizes());
  if (!bias.defined()) return;
  const DType wanted = dtype == DType::Float64 ? dtype : DType::Float32;
  QUANTA_CHECK(bias.dtype() == wanted, "linear: bias: expected {}, got {}", wanted, bias.dtype());
  QUANTA_CHECK(bias.dim() == 1 && bias.sizes()[0] == weight.sizes()[0],
               "linear: bias: expected one number for each of {} output features, got sizes {}",
               weight.sizes()[0], bias.sizes());
}

/// The sizes of the result.
Dims output_sizes(const Tensor& x, std::int64_t in_features, std::int64_t out_features) {
  QUANTA_CHECK(x.dim() >= 1 && x.sizes().back() == in_features,
               "linear: x: expected a last dimension of {} features, got sizes {}", in_features,
               x.sizes());
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = out_features;
  return sizes;
}

/// Of weights with items of `weight_item` bytes.
template <typename Kernel>
OpWork linear_work(const Kernel& kernel, const Tensor& x, const Tensor& out,
                   std::size_t weight_item) {
  const auto weights = static_cast<std::size_t>(kernel.in_features() * kernel.out_features());
  return {.multiply_adds = x.numel() * kernel.out_features(),
          .bytes = static_cast<std::int64_t>(x.nbytes() + out.nbytes() + weights * weight_item)};
}

/// A copy that nobody else can write to.
Tensor own(const Tensor& x) { return x.defined() ? x.clone(MemoryFormat::Contiguous) : x; }

Tensor run_float(const std::shared_ptr<const cpu::LinearFloat>& shared, const Tensor& x) {
  const cpu::LinearFloat& kernel = *shared;
  OpScope scope("linear");
  QUANTA_CHECK(x.defined(), "linear: x: expected a tensor, got an undefined one");
  QUANTA_CHECK(x.dtype() == DType::Float32, "linear: x: expected Float32, got {}{}", x.dtype(),
               x.is_quantized() ? " (is a DeQuantStub missing?)" : "");
  Tensor out = Tensor::empty(output_sizes(x, kernel.in_features(), kernel.out_features()));
  scope.work([&] { return linear_work(kernel, x, out, sizeof(float)); });
  if (out.numel() > 0) {
    const Tensor input = x.contiguous();
    scope.kernel(kernel.run(x.numel() / kernel.in_features(),
                            static_cast<const float*>(input.data_ptr()),
                            static_cast<float*>(out.data_ptr())));
    if (replay::is_recording()) {
      replay::record({.op = "linear",
                      .inputs = {input},
                      .outputs = {out},
                      .run = [shared](const replay::Frame& frame) {
                        shared->run(frame.in().numel() / shared->in_features(),
                                    static_cast<const float*>(frame.in().data_ptr()),
                                    static_cast<float*>(frame.out().data_ptr()));
                      }});
    }
  }
  return out;
}

// For proofs of gradients.
Tensor double_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_weight(weight, bias, DType::Float64);
  QUANTA_CHECK(x.defined() && x.dtype() == DType::Float64,
               "linear: x: expected Float64 as the weight has, got {}",
               x.defined() ? to_string(x.dtype()) : "an undefined tensor");
  const Dims sizes = output_sizes(x, weight.sizes()[1], weight.sizes()[0]);
  const Tensor out = matmul(x.reshape({-1, weight.sizes()[1]}), weight.t());
  if (bias.defined()) {
    const Tensor added = bias.contiguous();
    double* values = out.mutable_data<double>();
    for (std::int64_t i = 0; i < out.numel(); ++i)
      values[i] += added.data<double>()[i % added.numel()];
  }
  return out.view(sizes);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (replay::is_recording()) {
    return replay::call(
        "linear", [](const Tensor& a, const Tensor& b, const Tensor& c) { return linear(a, b, c); },
        x, weight, bias);
  }
  if (autograd::needs_grad(x, weight, bias)) {
    Tensor y = [&] {
      const autograd::NoGradGuard guard;
      return linear(x, weight, bias);
    }();
    return gradients::record_linear(std::move(y), x, weight, bias);
  }
  if (weight.defined() && weight.dtype() == DType::Float64) return double_linear(x, weight, bias);
  check_weight(weight, bias, DType::Float32);
  return run_float(
      std::make_shared<const cpu::LinearFloat>(
          weight.contiguous(), bias.defined() ? bias.contiguous() : bias, cpu::FloatEpilogue::None),
      x);
}

struct PackedLinear::Impl {
  Impl(const Tensor& weight, const Tensor& bias, cpu::FloatEpilogue epilogue)
      : kernel(own(weight), own(bias), epilogue) {}
  cpu::LinearFloat kernel;
};

PackedLinear::PackedLinear(const Tensor& weight, const Tensor& bias, Fusion fusion) {
  check_weight(weight, bias, DType::Float32);
  impl_ = std::make_shared<Impl>(
      weight, bias, fusion == Fusion::ReLU ? cpu::FloatEpilogue::ReLU : cpu::FloatEpilogue::None);
}

Tensor PackedLinear::operator()(const Tensor& x) const {
  QUANTA_CHECK(defined(), "linear: weight: expected a packed weight, got an empty PackedLinear");
  if (x.defined()) autograd::require_no_grad("linear (packed)", x);
  return run_float({impl_, &impl_->kernel}, x);
}

namespace quantized {

LinearPackedParams::LinearPackedParams(const QTensor& weight, const Tensor& bias) {
  check_weight(weight, bias, DType::QInt8);
  if (weight.is_per_channel()) {
    QUANTA_CHECK(weight.qscheme() == QScheme::PerChannelAffine,
                 "linear: weight: expected integer zero points, got {}", weight.qscheme());
    QUANTA_CHECK(weight.q_per_channel_axis() == 0,
                 "linear: weight: expected QInt8 quantized along axis 0, got {} along axis {}",
                 weight.dtype(), weight.q_per_channel_axis());
  }
  impl_ = std::make_shared<Impl>(
      cpu::QuantizedWeight(QTensor(detail::unshared(weight)), own(bias), weight.sizes()[0]));
}

namespace {

const cpu::LinearInt8& checked_kernel(const LinearPackedParams& packed) {
  QUANTA_CHECK(packed.defined(),
               "linear: packed: expected packed parameters, got empty LinearPackedParams");
  return packed.impl().kernel;
}

cpu::CallQParams checked_call(const QTensor& x, double scale, std::int64_t zero_point) {
  QUANTA_CHECK(x.defined(), "linear: x: expected a tensor, got an undefined one");
  QUANTA_CHECK(x.dtype() == DType::QUInt8, "linear: x: expected QUInt8, got {}{}", x.dtype(),
               x.is_quantized() ? "" : " (is a QuantStub missing?)");
  QUANTA_CHECK(!x.is_per_channel(), "linear: x: expected a tensor quantized per tensor, got {}",
               x.qscheme());
  check_quantizer("linear", Quantizer::per_tensor(scale, zero_point), DType::QUInt8, x.sizes());
  const Quantizer& quantizer = x.quantizer();
  return {static_cast<float>(quantizer.scale), static_cast<std::int32_t>(quantizer.zero_point),
          static_cast<float>(scale), static_cast<std::int32_t>(zero_point)};
}

QTensor linear_codes(std::string_view name, const QTensor& x, const LinearPackedParams& packed,
                     double scale, std::int64_t zero_point, cpu::SumOutput output) {
  OpScope scope(name);
  const cpu::LinearInt8& kernel = checked_kernel(packed);
  const cpu::CallQParams qparams = checked_call(x, scale, zero_point);
  QTensor out = QTensor::empty(output_sizes(x, kernel.in_features(), kernel.out_features()), scale,
                               zero_point, DType::QUInt8);
  scope.work([&] { return linear_work(kernel, x, out, 1); });
  if (out.numel() > 0) {
    const Tensor input = x.contiguous();
    scope.kernel(kernel.codes(x.numel() / kernel.in_features(), qparams, output,
                              static_cast<const std::uint8_t*>(input.data_ptr()),
                              static_cast<std::uint8_t*>(out.data_ptr())));
    if (replay::is_recording()) {
      replay::record({.op = name,
                      .inputs = {input},
                      .outputs = {out},
                      .run = [packed, qparams, output](const replay::Frame& frame) {
                        const cpu::LinearInt8& packed_kernel = packed.impl().kernel;
                        packed_kernel.codes(frame.in().numel() / packed_kernel.in_features(),
                                            qparams, output,
                                            static_cast<const std::uint8_t*>(frame.in().data_ptr()),
                                            static_cast<std::uint8_t*>(frame.out().data_ptr()));
                      }});
    }
  }
  return out;
}

QTensor linear_function(std::string_view name, const QTensor& x, const LinearPackedParams& packed,
                        double scale, std::int64_t zero_point, const cpu::FloatFunction& function) {
  OpScope scope(name);
  const cpu::LinearInt8& kernel = checked_kernel(packed);
  const cpu::CallQParams qparams = checked_call(x, scale, zero_point);
  QTensor out = QTensor::empty(output_sizes(x, kernel.in_features(), kernel.out_features()), scale,
                               zero_point, DType::QUInt8);
  scope.work([&] { return linear_work(kernel, x, out, 1); });
  if (out.numel() > 0) {
    const Tensor input = x.contiguous();
    const std::int64_t rows = x.numel() / kernel.in_features();
    const auto run = [packed, qparams, function, rows](const Tensor& from, const Tensor& to) {
      const cpu::LinearInt8& product = packed.impl().kernel;
      const cpu::Int8Sums sums = product.sums(rows, qparams.src_zero_point,
                                              static_cast<const std::uint8_t*>(from.data_ptr()));
      cpu::sums_to_codes(sums, product.weight(), qparams, function, nullptr, rows,
                         product.out_features(), static_cast<std::uint8_t*>(to.data_ptr()));
      return sums.kernel;
    };
    scope.kernel(run(input, out));
    if (replay::is_recording()) {
      replay::record(
          {.op = name, .inputs = {input}, .outputs = {out}, .run = [run](const replay::Frame& f) {
             run(f.in(), f.out());
           }});
    }
  }
  return out;
}

}  // namespace

const QTensor& LinearPackedParams::weight() const {
  return checked_kernel(*this).weight().weight();
}
const Tensor& LinearPackedParams::bias() const { return checked_kernel(*this).weight().bias(); }

QTensor linear(const QTensor& x, const LinearPackedParams& packed, double scale,
               std::int64_t zero_point) {
  return linear_codes("quantized::linear", x, packed, scale, zero_point, cpu::SumOutput::Codes);
}

QTensor linear_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point) {
  return linear_codes("quantized::linear_relu", x, packed, scale, zero_point,
                      cpu::SumOutput::CodesReLU);
}

QTensor linear_leaky_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                          std::int64_t zero_point, double negative_slope) {
  QUANTA_CHECK(std::isfinite(negative_slope),
               "linear_leaky_relu: negative_slope: expected a finite number, got {}",
               negative_slope);
  return linear_function("quantized::linear_leaky_relu", x, packed, scale, zero_point,
                         {cpu::FloatStep::LeakyReLU, static_cast<float>(negative_slope)});
}

QTensor linear_tanh(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point) {
  return linear_function("quantized::linear_tanh", x, packed, scale, zero_point,
                         {cpu::FloatStep::Tanh});
}

}  // namespace quantized
}  // namespace quanta
