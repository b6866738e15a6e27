// Batch norm: of floats and codes by given statistics, of floats by those of the batch.

#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cuda/device_data.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/norm/batch_statistics.h"
#include "quanta/ops/norm/checks.h"
#include "quanta/ops/norm/cpu_batch_norm.h"
#include "quanta/ops/norm/cpu_groups.h"
#include "quanta/ops/norm/cuda_gradient.h"
#include "quanta/ops/norm/cuda_groups.h"
#include "quanta/ops/norm/families.h"
#include "quanta/ops/norm/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/detail/norm_math.h"
#include "quanta/runtime/detail/state.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace norm {
namespace {

// Both functions on floats are torch's batch_norm, and say so in their errors.
constexpr std::string_view kTorchName = "batch_norm";

Dims channels_of(const Tensor& x) { return {x.sizes()[1]}; }

// x, and with it the result, in the order that they have; parameters dense.
void arrange(const Tensor& x, Results& out, std::initializer_list<std::size_t> parameters) {
  out.arrange(0, format_of(x));
  for (const std::size_t i : parameters) out.arrange(i, MemoryFormat::Contiguous);
}

template <typename T>
void apply(const Tensor& x, const cpu::ChannelAffine<T>& affine, const Tensor& out) {
  cpu::apply_channels(cpu::ChannelGeometry(x), static_cast<const T*>(x.data_ptr()), affine,
                      static_cast<T*>(out.data_ptr()));
}

template <typename T>
std::vector<T> copy_numbers(const Tensor& parameter, std::int64_t count, T fallback) {
  const Numbers<T> numbers(parameter, count, fallback);
  return {numbers.data(), numbers.data() + count};
}

// By given statistics --------------------------------------------------------------------------

/// x, mean, var, weight, bias. Gives y, and for the way back a copy of the mean and of
/// 1 / sqrt(var + eps), as running statistics may move on before it comes.
struct BatchNorm final : Op<BatchNorm> {
  static constexpr std::string_view kName = kTorchName;
  static constexpr ArgumentCount kArguments{5};
  double eps = 1e-5;

  explicit BatchNorm(double epsilon) : eps(epsilon) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_floats_to_normalize(kName, x);
    const Dims channels = channels_of(x);
    check_parameter(kName, "weight", in[3], x.dtype(), channels);
    check_parameter(kName, "bias", in[4], x.dtype(), channels);
    check_eps(kName, eps);
    check_required(kName, "mean", in[1], x.dtype(), channels);
    check_required(kName, "var", in[2], x.dtype(), channels);
    arrange(x, out, {1, 2, 3, 4});
    out.add(x.sizes(), x.dtype(), format_of(x));
    out.add({2, channels[0]}, DType::Float64);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t channels = in[0].sizes()[1];
      auto* statistics = out[1].mutable_data<double>();
      const Numbers<T> means(in[1], channels, T{0});
      const Numbers<T> vars(in[2], channels, T{1});
      cpu::ChannelAffine<T> affine{std::vector<T>(static_cast<std::size_t>(channels)),
                                   copy_numbers<T>(in[3], channels, T{1}),
                                   copy_numbers<T>(in[4], channels, T{0})};
      for (std::size_t c = 0; c < affine.scale.size(); ++c) {
        const math::BatchNormLine<T> line = math::batch_norm_line(
            means.data()[c], vars.data()[c], affine.scale[c], affine.shift[c], eps);
        affine.scale[c] = line.scale;
        affine.shift[c] = line.shift;
        statistics[c] = static_cast<double>(means.data()[c]);
        statistics[affine.scale.size() + c] =
            1.0 / std::sqrt(static_cast<double>(vars.data()[c]) + eps);
      }
      if (in[0].numel() > 0) apply(in[0], affine, out[0]);
    });
    return in[0].dtype() == DType::Float64 ? "doubles" : "simd";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const cuda::NormTensors tensors{.dtype = x.dtype(),
                                    .x = x.device_ptr(),
                                    .parameters = x.dtype(),
                                    .weight = cuda::data_of(in[3]),
                                    .bias = cuda::data_of(in[4]),
                                    .y = out[0].device_ptr(),
                                    .output = {}};
    cuda::batch_norm(x.device(), NormGeometry(x, format_of(x)), tensors,
                     {.mean = cuda::data_of(in[1]),
                      .var = cuda::data_of(in[2]),
                      .eps = eps,
                      .statistics = reinterpret_cast<double*>(out[1].device_ptr())});
    return "normalize";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }

  PlanUse plan_use(const Arguments&, std::span<const Tensor>) const override {
    return {.in_place = true};
  }

  GradientUse gradient_use(std::uint64_t needed) const override {
    constexpr std::uint64_t kStatistics = 0b110;
    return (needed & kStatistics) != 0 ? GradientUse{} : GradientUse::of(0b1001, 0b10);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor statistics = context.output(1);
    const BatchNormGradients gradients = batch_norm_gradients(
        {.gradient = context.grad(),
         .x = context.input(0),
         .mean = statistics.select(0, 0),
         .inv_std = statistics.select(0, 1),
         .weight = context.input(3),
         .moments = Moments::Given,
         .divisor = {},
         .needs = {.x = context.needs(0), .weight = context.needs(3), .bias = context.needs(4)}});
    return {gradients.x, {}, {}, gradients.weight, gradients.bias};
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<BatchNorm, &BatchNorm::eps>("eps")};
    return kTable;
  }
};

/// x, weight, bias, mean, var.
struct QuantizedBatchNorm final : Op<QuantizedBatchNorm> {
  static constexpr std::array<std::string_view, 2> kNames{"quantized::batch_norm",
                                                          "quantized::batch_norm_relu"};
  static constexpr ArgumentCount kArguments{5};
  static constexpr bool kWorksByRows = true;
  Clamp clamp;
  double eps;
  double scale;
  std::int64_t zero_point;

  QuantizedBatchNorm(Clamp clamp_to, double epsilon, double scale_out, std::int64_t zero_point_out)
      : clamp(clamp_to), eps(epsilon), scale(scale_out), zero_point(zero_point_out) {}

  std::string_view name() const noexcept override {
    return kNames[static_cast<std::size_t>(clamp)];
  }

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_quantized_8bit(name(), x);
    QUANTA_CHECK(x.dim() >= 2 && x.dim() <= 5, "{}: x: expected 2 to 5 dimensions, got {}", name(),
                 x.sizes());
    constexpr std::array<std::string_view, 4> kParameters{"weight", "bias", "mean", "var"};
    for (std::size_t i = 0; i < kParameters.size(); ++i) {
      check_required(name(), kParameters[i], in[i + 1], DType::Float32, channels_of(x));
    }
    check_eps(name(), eps);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(name(), quantizer, x.dtype(), x.sizes());
    const MemoryFormat format = x.dim() >= 4 ? MemoryFormat::ChannelsLast : format_of(x);
    arrange(x, out, {1, 2, 3, 4});
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), quantizer, format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::int64_t channels = x.sizes()[1];
    std::vector<float> alpha = copy_numbers<float>(in[1], channels, 1.0F);
    std::vector<float> beta = copy_numbers<float>(in[2], channels, 0.0F);
    const Numbers<float> means(in[3], channels, 0.0F);
    const Numbers<float> vars(in[4], channels, 1.0F);
    const Quantizer& from = x.impl()->quantizer;
    for (std::size_t c = 0; c < alpha.size(); ++c) {
      const math::BatchNormLine<float> line = math::batch_norm_line_of_codes(
          means.data()[c], vars.data()[c], alpha[c], beta[c], eps, from.scale, scale);
      alpha[c] = line.scale;
      beta[c] = line.shift;
    }
    cpu::norm_per_channel(
        geometry(x, out[0]),
        {x.dtype(), x.data_ptr(), alpha.data(), beta.data(), out[0].data_ptr(), output(out[0])},
        static_cast<float>(from.zero_point));
    return "simd";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Quantizer& from = x.impl()->quantizer;
    const cuda::NormTensors tensors{.dtype = x.dtype(),
                                    .x = x.device_ptr(),
                                    .weight = cuda::data_of(in[1]),
                                    .bias = cuda::data_of(in[2]),
                                    .y = out[0].device_ptr(),
                                    .output = output(out[0])};
    cuda::batch_norm(x.device(), geometry(x, out[0]), tensors,
                     {.mean = cuda::data_of(in[3]),
                      .var = cuda::data_of(in[4]),
                      .eps = eps,
                      .scale_in = from.scale,
                      .scale_out = scale,
                      .zero_point_in = from.zero_point});
    return "normalize";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizedBatchNorm, &QuantizedBatchNorm::eps>("eps"),
        attribute<QuantizedBatchNorm, &QuantizedBatchNorm::scale>("scale"),
        attribute<QuantizedBatchNorm, &QuantizedBatchNorm::zero_point>("zero_point")};
    return kTable;
  }

 private:
  NormOutput output(const Tensor& result) const {
    NormOutput output = output_of(result, clamp);
    output.inv_scale = 1.0F;  // it is part of both numbers of a channel
    return output;
  }
  static NormGeometry geometry(const Tensor& x, const Tensor& result) {
    return {x, x.dim() >= 4 ? MemoryFormat::ChannelsLast : format_of(result)};
  }
};

// By those of the batch ------------------------------------------------------------------------

cpu::ChannelMoments compute_moments(const Tensor& dense) {
  if (dense.numel() == 0) {
    const std::vector<double> nothing(static_cast<std::size_t>(dense.sizes()[1]));
    return {nothing, nothing};
  }
  return detail::visit_floats(dense.dtype(), [&](auto zero) {
    using T = decltype(zero);
    return cpu::channel_moments(cpu::ChannelGeometry(dense),
                                static_cast<const T*>(dense.data_ptr()));
  });
}

/// Gives y, and for the way back the mean and the factor that took the place of 1 / sqrt(var).
struct BatchNormTrain final : Op<BatchNormTrain>, BatchNormTrainCall {
  static constexpr std::string_view kName = "batch_norm_train";
  using BatchNormTrainCall::kArguments;

  BatchNormTrain(double momentum_of_statistics, double epsilon)
      : BatchNormTrainCall{momentum_of_statistics, epsilon} {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[kX];
    check(kTorchName, in);
    // A batch without elements passes, as in torch.
    QUANTA_CHECK(values_a_channel(x) != 1,
                 "{}: x: expected more than 1 value for each channel in train mode, got {}",
                 kTorchName, x.sizes());
    if (in[kRunningMean].defined() || in[kRunningVar].defined()) {
      detail::require_no_recording(kTorchName, "running_mean");
    }
    arrange(x, out, {kWeight, kBias});
    out.add(x.sizes(), x.dtype(), format_of(x));
    out.add(channels_of(x), DType::Float64);
    out.add(channels_of(x), DType::Float64);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[kX];
    normalize(in, compute_moments(x), values_a_channel(x), out);
    return x.dtype() == DType::Float64 ? "doubles" : "simd";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[kX];
    cuda::BatchNormTraining training{.running_mean = in[kRunningMean],
                                     .running_var = in[kRunningVar],
                                     .weight = in[kWeight],
                                     .bias = in[kBias],
                                     .divisor = in[kDivisor],
                                     .shift = in[kShift],
                                     .eps = eps,
                                     .momentum = momentum};
    cuda::batch_norm_train(NormGeometry(x, format_of(x)), x, training, out[0], out[1], out[2]);
    return "normalize";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }

  GradientUse gradient_use(std::uint64_t) const override {
    return GradientUse::of(1U << kX | 1U << kWeight | 1U << kDivisor, 0b110);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const BatchNormGradients gradients =
        batch_norm_gradients({.gradient = context.grad(),
                              .x = context.input(kX),
                              .mean = context.output(1),
                              .inv_std = context.output(2),
                              .weight = context.input(kWeight),
                              .moments = Moments::OfBatch,
                              .divisor = context.input(kDivisor),
                              .eps = eps,
                              .needs = {.x = context.needs(kX),
                                        .weight = context.needs(kWeight),
                                        .bias = context.needs(kBias),
                                        .divisor = context.needs(kDivisor)}});
    return by_argument(gradients, context);
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<BatchNormTrain, &BatchNormTrain::momentum>("momentum"),
        attribute<BatchNormTrain, &BatchNormTrain::eps>("eps")};
    return kTable;
  }
};

// The catalogue --------------------------------------------------------------------------------

constexpr std::string_view kHeader = "quanta/ops/norm.h";

Tensor sample_parameter(DType dtype, std::uint64_t seed) {
  return sample_tensor({3}, dtype == DType::Float64 ? dtype : DType::Float32, seed);
}

// Above 0.
Tensor sample_variance(DType dtype) {
  const Tensor variance = Tensor::empty({3}, dtype == DType::Float64 ? dtype : DType::Float32);
  variance.fill_(0.75);
  return variance;
}

template <Clamp clamp>
Sample quantized_sample(DType dtype) {
  return sample_call(
      QuantizedBatchNorm(clamp, 1e-5, 0.04, 9),
      {sample_tensor({2, 3, 5, 4}, dtype), sample_parameter(dtype, 2), sample_parameter(dtype, 3),
       sample_parameter(dtype, 4), sample_variance(dtype)});
}

}  // namespace

void add_batch_norms(Catalogue& catalogue) {
  catalogue.add(
      {.name = BatchNorm::kName, .header = kHeader, .dtypes = dtypes::kFloats}, [](DType dtype) {
        return sample_call(BatchNorm(1e-5),
                           {sample_tensor({2, 3, 5, 4}, dtype), sample_parameter(dtype, 2),
                            sample_variance(dtype), sample_parameter(dtype, 3), Tensor()});
      });
  catalogue.add({.name = BatchNormTrain::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(BatchNormTrain(0.1, 1e-5),
                                     {sample_tensor({2, 3, 5, 4}, dtype), Tensor(), Tensor(),
                                      sample_parameter(dtype, 2), Tensor(), sample_variance(dtype),
                                      sample_parameter(dtype, 3)});
                });
  catalogue.add({.name = QuantizedBatchNorm::kNames[0], .header = kHeader, .dtypes = dtypes::kQ8},
                quantized_sample<Clamp::No>);
  catalogue.add({.name = QuantizedBatchNorm::kNames[1], .header = kHeader, .dtypes = dtypes::kQ8},
                quantized_sample<Clamp::ReLU>);
}

}  // namespace norm

using namespace norm;

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return run(BatchNorm(eps), x, mean, var, weight, bias);
}

Tensor batch_norm_train(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight, const Tensor& bias,
                        const BatchNormTrainOptions& options) {
  return run(BatchNormTrain(options.momentum, options.eps), x, running_mean, running_var, weight,
             bias, options.divisor, options.shift);
}

namespace quantized {

QTensor batch_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& var, double eps, double scale, std::int64_t zero_point) {
  return QTensor(
      run(QuantizedBatchNorm(Clamp::No, eps, scale, zero_point), x, weight, bias, mean, var));
}

QTensor batch_norm_relu(const QTensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& mean, const Tensor& var, double eps, double scale,
                        std::int64_t zero_point) {
  return QTensor(
      run(QuantizedBatchNorm(Clamp::ReLU, eps, scale, zero_point), x, weight, bias, mean, var));
}

}  // namespace quantized
}  // namespace quanta
