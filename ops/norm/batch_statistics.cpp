#include "quanta/ops/norm/batch_statistics.h"

#include <algorithm>
#include <utility>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/norm/checks.h"
#include "quanta/runtime/detail/norm_math.h"

namespace quanta::norm {
namespace {

// A new tensor with running * (1 - momentum) + now * momentum.
Tensor moved_statistics(const Tensor& running, const std::vector<double>& now, double momentum) {
  const Tensor dense = running.contiguous();
  Tensor moved = Tensor::empty(running.sizes(), running.dtype());
  detail::visit_floats(running.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t c = 0; c < now.size(); ++c) {
      moved.mutable_data<T>()[c] = math::moved_statistic(dense.data<T>()[c], now[c], momentum);
    }
  });
  return moved;
}

// The elements of a dense parameter, or `count` of `fallback` if it is undefined.
std::vector<double> as_doubles(const Tensor& parameter, std::int64_t count, double fallback) {
  const auto size = static_cast<std::size_t>(count);
  if (!parameter.defined()) return std::vector<double>(size, fallback);
  const Tensor wide = parameter.to(DType::Float64).contiguous();
  return {wide.data<double>(), wide.data<double>() + count};
}

// Statistics that follow those of the batches; undefined ones do not.
struct RunningStatistics {
  const Tensor& mean;
  const Tensor& var;
  double momentum;
};

// Moves them towards those of `count` elements a channel, each divided by the divisor and shifted. A
// count of 0 changes nothing.
void move_statistics(const RunningStatistics& running, const cpu::ChannelMoments& of_batch,
                     std::int64_t count, const std::vector<double>& divisors,
                     const std::vector<double>& shifts) {
  const auto channels = static_cast<std::int64_t>(divisors.size());
  const std::vector<double> means = as_doubles(running.mean, channels, 0.0);
  const std::vector<double> vars = as_doubles(running.var, channels, 0.0);
  cpu::ChannelMoments now = of_batch;
  for (std::size_t c = 0; c < divisors.size(); ++c) {
    const math::MeanAndVariance statistics =
        math::statistics_of_quotient({of_batch.mean[c], of_batch.variance[c]}, count, divisors[c],
                                     shifts[c], {means[c], vars[c]});
    now.mean[c] = statistics.mean;
    now.variance[c] = statistics.variance;
  }
  const double step = count == 0 ? 0.0 : running.momentum;
  for (const auto& [tensor, values] :
       {std::pair(&running.mean, &now.mean), std::pair(&running.var, &now.variance)}) {
    if (tensor->defined()) tensor->copy_(moved_statistics(*tensor, *values, step));
  }
}

// x with the moments taken out, times weight, plus bias.
void apply(const Arguments& in, const std::vector<double>& mean, const std::vector<double>& inv_std,
           const Tensor& y) {
  using Call = BatchNormTrainCall;
  const Tensor& x = in[Call::kX];
  const std::int64_t channels = x.sizes()[1];
  const std::vector<double> weights = as_doubles(in[Call::kWeight], channels, 1.0);
  const std::vector<double> biases = as_doubles(in[Call::kBias], channels, 0.0);
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::ChannelAffine<T> affine{
        std::vector<T>(mean.begin(), mean.end()), {}, std::vector<T>(biases.begin(), biases.end())};
    for (std::size_t c = 0; c < weights.size(); ++c) {
      affine.scale.push_back(static_cast<T>(weights[c] * inv_std[c]));
    }
    cpu::apply_channels(cpu::ChannelGeometry(x), static_cast<const T*>(x.data_ptr()), affine,
                        static_cast<T*>(y.data_ptr()));
  });
}

}  // namespace

std::int64_t values_a_channel(const Tensor& x) {
  return x.sizes()[1] == 0 ? 0 : x.numel() / x.sizes()[1];
}

void BatchNormTrainCall::check(std::string_view op, const Arguments& in) const {
  const Tensor& x = in[kX];
  check_floats_to_normalize(op, x);
  const Dims channels{x.sizes()[1]};
  check_parameter(op, "weight", in[kWeight], x.dtype(), channels);
  check_parameter(op, "bias", in[kBias], x.dtype(), channels);
  check_eps(op, eps);
  check_parameter(op, "running_mean", in[kRunningMean], x.dtype(), channels);
  check_parameter(op, "running_var", in[kRunningVar], x.dtype(), channels);
  check_parameter(op, "divisor", in[kDivisor], x.dtype(), channels);
  check_parameter(op, "shift", in[kShift], x.dtype(), channels);
}

void BatchNormTrainCall::normalize(const Arguments& in, const cpu::ChannelMoments& moments,
                                   std::int64_t count, std::span<const Tensor> out) const {
  const Tensor& x = in[kX];
  const std::int64_t channels = x.sizes()[1];
  const std::vector<double> divisors = as_doubles(in[kDivisor], channels, 1.0);
  std::vector<double> inv_std(moments.mean.size());
  for (std::size_t c = 0; c < inv_std.size(); ++c) {
    inv_std[c] = math::inverse_std_of_quotient(moments.variance[c], divisors[c], eps);
  }
  std::copy(moments.mean.begin(), moments.mean.end(), out[1].mutable_data<double>());
  std::copy(inv_std.begin(), inv_std.end(), out[2].mutable_data<double>());
  if (x.numel() > 0) apply(in, moments.mean, inv_std, out[0]);
  move_statistics({in[kRunningMean], in[kRunningVar], momentum}, moments, count, divisors,
                  as_doubles(in[kShift], channels, 0.0));
}

std::vector<Tensor> BatchNormTrainCall::by_argument(const BatchNormGradients& gradients,
                                                    const autograd::BackwardContext& context) {
  const Device device = context.grad().device();
  const auto there = [&](const Tensor& x) { return x.defined() ? x.to(device) : x; };
  std::vector<Tensor> results(kCount);
  results[kX] = there(gradients.x);
  results[kWeight] = there(gradients.weight);
  results[kBias] = there(gradients.bias);
  results[kDivisor] = there(gradients.divisor);
  // The mean takes the shift out again.
  if (context.needs(kShift)) {
    results[kShift] =
        Tensor::zeros(context.input_sizes(kShift), context.input_dtype(kShift)).to(device);
  }
  return results;
}

}  // namespace quanta::norm
