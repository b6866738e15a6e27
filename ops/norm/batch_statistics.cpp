#include "quanta/ops/norm/batch_statistics.h"

#include <cstddef>
#include <utility>

#include "quanta/ops/detail/floating.h"
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

}  // namespace

std::vector<double> as_doubles(const Tensor& parameter, std::int64_t count, double fallback) {
  const auto size = static_cast<std::size_t>(count);
  if (!parameter.defined()) return std::vector<double>(size, fallback);
  const Tensor wide = parameter.to(DType::Float64).contiguous();
  return {wide.data<double>(), wide.data<double>() + count};
}

std::int64_t values_a_channel(const Tensor& x) {
  return x.sizes()[1] == 0 ? 0 : x.numel() / x.sizes()[1];
}

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

}  // namespace quanta::norm
