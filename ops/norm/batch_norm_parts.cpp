// Batch norm by the statistics of a batch whose parts are with several holders.

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

/// Gives y, and for the way back the mean, the factor that took the place of 1 / sqrt(var), and how
/// many elements a channel has in all parts.
struct BatchNormParts final : Op<BatchNormParts>, BatchNormTrainCall {
  static constexpr std::string_view kName = "batch_norm_train";
  using BatchNormTrainCall::kArguments;
  SumOverParts sum;

  BatchNormParts(const BatchNormTrainOptions& options, const SumOverParts& sum_over_parts)
      : BatchNormTrainCall{options.momentum, options.eps}, sum(sum_over_parts) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[kX];
    check(kName, in);
    QUANTA_CHECK(sum != nullptr, "{}: sum: expected a function, got an empty one", kName);
    const Dims channels{x.sizes()[1]};
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
    std::vector<double> sums = sums_of(x);
    sum(sums);
    const auto count = static_cast<std::int64_t>(sums.back());
    QUANTA_CHECK(count != 1,
                 "{}: x: expected more than 1 value for each channel in all parts together, got {} "
                 "as this part",
                 kName, x.sizes());
    cpu::ChannelMoments moments;
    const std::size_t channels = sums.size() / 2;
    for (std::size_t c = 0; c < channels; ++c) {
      const math::MeanAndVariance of_channel =
          math::mean_and_variance(sums[c], sums[channels + c], count);
      moments.mean.push_back(of_channel.mean);
      moments.variance.push_back(of_channel.variance);
    }
    normalize(in, moments, count, out);
    out[3].fill_(sums.back());
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
    return by_argument(gradients, context);
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<BatchNormParts, &BatchNormParts::momentum>("momentum"),
        attribute<BatchNormParts, &BatchNormParts::eps>("eps")};
    return kTable;
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
