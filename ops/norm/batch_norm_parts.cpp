// Batch norm by the statistics of a batch whose parts are with several holders.

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/norm/batch_statistics.h"
#include "quanta/ops/norm/checks.h"
#include "quanta/ops/norm/cpu_batch_norm.h"
#include "quanta/ops/norm/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/detail/norm_math.h"
#include "quanta/runtime/detail/state.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace norm {
namespace {

// Sums of x and of its square for each channel, and how many elements they have.
std::vector<double> sums_of(const Tensor& dense) {
  const auto channels = static_cast<std::size_t>(dense.sizes()[1]);
  std::vector<double> sums(2 * channels);
  if (dense.numel() > 0) {
    detail::visit_floats(dense.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* data = static_cast<const T*>(dense.data_ptr());
      sums = cpu::channel_gradient_sums(cpu::ChannelGeometry(dense), data, data,
                                        std::vector<T>(channels));
    });
  }
  sums.push_back(static_cast<double>(values_a_channel(dense)));
  return sums;
}

Tensor on_host(const Tensor& x) { return x.defined() ? x.cpu() : x; }
Tensor on(Device device, const Tensor& gradient) {
  return gradient.defined() ? gradient.to(device) : gradient;
}

/// Gives y, and for the way back the mean, the factor that took the place of 1 / sqrt(var), and how
/// many elements a channel has in all parts.
struct BatchNormParts final : Op<BatchNormParts> {
  static constexpr std::string_view kName = "batch_norm_train";
  static constexpr ArgumentCount kArguments{7};
  enum Argument : std::size_t {
    kX,
    kRunningMean,
    kRunningVar,
    kWeight,
    kBias,
    kDivisor,
    kShift,
    kCount
  };
  double momentum;
  double eps;
  SumOverParts sum;

  BatchNormParts(const BatchNormTrainOptions& options, const SumOverParts& sum_over_parts)
      : momentum(options.momentum), eps(options.eps), sum(sum_over_parts) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[kX];
    detail::check_floats(kName, "x", x);
    QUANTA_CHECK(x.dim() >= 2, "{}: x: expected at least 2 dimensions, got {}", kName, x.sizes());
    QUANTA_CHECK(sum != nullptr, "{}: sum: expected a function, got an empty one", kName);
    const Dims channels{x.sizes()[1]};
    check_parameter(kName, "running_mean", in[kRunningMean], x.dtype(), channels);
    check_parameter(kName, "running_var", in[kRunningVar], x.dtype(), channels);
    check_parameter(kName, "weight", in[kWeight], x.dtype(), channels);
    check_parameter(kName, "bias", in[kBias], x.dtype(), channels);
    check_parameter(kName, "divisor", in[kDivisor], x.dtype(), channels);
    check_parameter(kName, "shift", in[kShift], x.dtype(), channels);
    check_eps(kName, eps);
    // The other parts would not be there when it is replayed.
    detail::require_no_recording(kName, "x");
    out.arrange(kX, format_of(x));
    for (const std::size_t i : {kWeight, kBias, kDivisor, kShift}) {
      out.arrange(i, MemoryFormat::Contiguous);
    }
    out.add(x.sizes(), x.dtype(), format_of(x));
    out.add(channels, DType::Float64);
    out.add(channels, DType::Float64);
    out.add({1}, DType::Float64);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[kX];
    const std::int64_t channels = x.sizes()[1];
    std::vector<double> sums = sums_of(x);
    sum(sums);
    const auto count = static_cast<std::int64_t>(sums.back());
    QUANTA_CHECK(count != 1,
                 "{}: x: expected more than 1 value for each channel in all parts together, got {} "
                 "as this part",
                 kName, x.sizes());
    cpu::ChannelMoments moments;
    const std::vector<double> divisors = as_doubles(in[kDivisor], channels, 1.0);
    std::vector<double> inv_std;
    for (std::size_t c = 0; c < divisors.size(); ++c) {
      const math::MeanAndVariance of_channel =
          math::mean_and_variance(sums[c], sums[divisors.size() + c], count);
      moments.mean.push_back(of_channel.mean);
      moments.variance.push_back(of_channel.variance);
      inv_std.push_back(math::inverse_std_of_quotient(of_channel.variance, divisors[c], eps));
    }
    std::copy(moments.mean.begin(), moments.mean.end(), out[1].mutable_data<double>());
    std::copy(inv_std.begin(), inv_std.end(), out[2].mutable_data<double>());
    out[3].fill_(sums.back());
    if (x.numel() > 0) normalize(in, moments.mean, inv_std, out[0]);
    move_statistics({in[kRunningMean], in[kRunningVar], momentum}, moments, count, divisors,
                    as_doubles(in[kShift], channels, 0.0));
    return x.dtype() == DType::Float64 ? "doubles" : "simd";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    std::vector<Tensor> host;
    for (std::size_t i = 0; i < kCount; ++i) host.push_back(on_host(in[i]));
    std::vector<Tensor> results;
    for (const Tensor& result : out) {
      results.push_back(Tensor::empty(result.sizes(), result.dtype(), format_of(result)));
    }
    std::vector<const Tensor*> pointers;
    for (const Tensor& argument : host) pointers.push_back(&argument);
    static_cast<void>(cpu(Arguments(pointers.data(), pointers.size()), results));
    for (std::size_t i = 0; i < results.size(); ++i) out[i].copy_(results[i]);
    for (const std::size_t i : {kRunningMean, kRunningVar}) {
      if (in[i].defined()) in[i].copy_(host[i]);
    }
    return "host";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    static constexpr std::array kDtypes{DType::Float32};
    return kDtypes;
  }

  GradientUse gradient_use(std::uint64_t) const override {
    return GradientUse::of(1U << kX | 1U << kWeight | 1U << kDivisor, 0b1110);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Device device = context.grad().device();
    const BatchNormGradients gradients =
        batch_norm_gradients({.gradient = on_host(context.grad()),
                              .x = on_host(context.input(kX)),
                              .mean = on_host(context.output(1)),
                              .inv_std = on_host(context.output(2)),
                              .weight = on_host(context.input(kWeight)),
                              .moments = Moments::OfBatch,
                              .divisor = on_host(context.input(kDivisor)),
                              .eps = eps,
                              .sum = sum,
                              .count = static_cast<std::int64_t>(on_host(context.output(3)).item()),
                              .needs = {.x = context.needs(kX),
                                        .weight = context.needs(kWeight),
                                        .bias = context.needs(kBias),
                                        .divisor = context.needs(kDivisor)}});
    std::vector<Tensor> results(kCount);
    results[kX] = on(device, gradients.x);
    results[kWeight] = on(device, gradients.weight);
    results[kBias] = on(device, gradients.bias);
    results[kDivisor] = on(device, gradients.divisor);
    // The mean takes the shift out again.
    if (context.needs(kShift)) {
      results[kShift] =
          Tensor::zeros(context.input_sizes(kShift), context.input_dtype(kShift)).to(device);
    }
    return results;
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<BatchNormParts, &BatchNormParts::momentum>("momentum"),
        attribute<BatchNormParts, &BatchNormParts::eps>("eps")};
    return kTable;
  }

 private:
  static void normalize(const Arguments& in, const std::vector<double>& mean,
                        const std::vector<double>& inv_std, const Tensor& y) {
    const Tensor& x = in[kX];
    const std::int64_t channels = x.sizes()[1];
    const std::vector<double> weights = as_doubles(in[kWeight], channels, 1.0);
    const std::vector<double> biases = as_doubles(in[kBias], channels, 0.0);
    detail::visit_floats(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      cpu::ChannelAffine<T> affine{std::vector<T>(mean.begin(), mean.end()),
                                   {},
                                   std::vector<T>(biases.begin(), biases.end())};
      for (std::size_t c = 0; c < weights.size(); ++c) {
        affine.scale.push_back(static_cast<T>(weights[c] * inv_std[c]));
      }
      cpu::apply_channels(cpu::ChannelGeometry(x), static_cast<const T*>(x.data_ptr()), affine,
                          static_cast<T*>(y.data_ptr()));
    });
  }
};

}  // namespace
}  // namespace norm

Tensor batch_norm_train(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight, const Tensor& bias,
                        const BatchNormTrainOptions& options, const SumOverParts& sum) {
  return run(norm::BatchNormParts(options, sum), x, running_mean, running_var, weight, bias,
             options.divisor, options.shift);
}

}  // namespace quanta
