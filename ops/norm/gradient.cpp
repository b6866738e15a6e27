#include "quanta/ops/norm/gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/norm/cpu_batch_norm.h"
#include "quanta/ops/norm/cuda_gradient.h"
#include "quanta/runtime/detail/norm_math.h"
#include "quanta/runtime/parallel.h"

namespace quanta::norm {
namespace {

// The numbers of a parameter of `count` elements; `fallback` for each if it is undefined.
template <typename T>
std::vector<T> copy_numbers(const Tensor& parameter, std::int64_t count, double fallback) {
  const auto size = static_cast<std::size_t>(count);
  if (!parameter.defined()) return std::vector<T>(size, static_cast<T>(fallback));
  const Tensor dense = parameter.to(DType::Float64).contiguous();
  const auto* data = dense.data<double>();
  std::vector<T> numbers(size);
  std::transform(data, data + count, numbers.begin(), [](double x) { return static_cast<T>(x); });
  return numbers;
}

Tensor parameter_gradient(const double* values, const Dims& sizes, DType dtype) {
  const Tensor wide = Tensor::empty(sizes, DType::Float64);
  std::copy_n(values, wide.numel(), wide.mutable_data<double>());
  return wide.to(dtype);
}

// Batch norm -------------------------------------------------------------------------------------

// The gradient is a * gradient + b * (x - mean) + c for each channel.
template <typename T>
cpu::ChannelGradient<T> batch_norm_gradient(const std::vector<double>& sums, std::int64_t count,
                                            const std::vector<double>& mean,
                                            const std::vector<double>& inv_std,
                                            const std::vector<double>& weight) {
  cpu::ChannelGradient<T> result;
  const std::size_t channels = mean.size();
  for (std::size_t c = 0; c < channels; ++c) {
    const math::BatchNormSlope slope =
        math::batch_norm_slope(sums[c], sums[channels + c], count, inv_std[c], weight[c]);
    result.a.push_back(static_cast<T>(slope.a));
    result.center.push_back(static_cast<T>(mean[c]));
    result.b.push_back(static_cast<T>(slope.b));
    result.c.push_back(static_cast<T>(slope.c));
  }
  return result;
}

// `sums` are of gradient * (x - mean).
std::vector<double> divisor_gradient(const std::vector<double>& divisor, double eps,
                                     const std::vector<double>& inv_std,
                                     const std::vector<double>& weight, const double* sums) {
  std::vector<double> result(divisor.size());
  for (std::size_t c = 0; c < result.size(); ++c) {
    result[c] = math::divisor_slope(divisor[c], eps, inv_std[c], weight[c], sums[c]);
  }
  return result;
}

template <typename T>
BatchNormGradients backward(const BatchNormBackward& given, const Tensor& gradient_tensor,
                            const Tensor& x_tensor) {
  const cpu::ChannelGeometry geometry(x_tensor);
  const auto* gradient = static_cast<const T*>(gradient_tensor.data_ptr());
  const auto* x = static_cast<const T*>(x_tensor.data_ptr());
  const Dims channels{geometry.channels};
  const DType dtype = x_tensor.dtype();
  const std::vector<double> mean = copy_numbers<double>(given.mean, geometry.channels, 0.0);
  const std::vector<double> inv_std = copy_numbers<double>(given.inv_std, geometry.channels, 1.0);
  const std::vector<double> weight = copy_numbers<double>(given.weight, geometry.channels, 1.0);
  const bool of_batch = given.moments == Moments::OfBatch;
  BatchNormGradients results;
  std::vector<double> sums;
  if (of_batch || given.needs.weight || given.needs.bias || given.needs.divisor) {
    sums =
        cpu::channel_gradient_sums(geometry, gradient, x, std::vector<T>(mean.begin(), mean.end()));
  }
  if (given.needs.x) {
    results.x = Tensor::empty(x_tensor.sizes(), dtype, x_tensor.suggested_format());
    auto* dst = static_cast<T*>(results.x.data_ptr());
    if (of_batch) {
      std::vector<double> of_all = sums;
      if (given.sum) given.sum(of_all);
      cpu::apply_channel_gradient(
          geometry, gradient, x,
          batch_norm_gradient<T>(of_all, given.sum ? given.count : geometry.count(), mean, inv_std,
                                 weight),
          dst);
    } else {
      cpu::ChannelAffine<T> affine;
      affine.center.assign(mean.size(), T{0});
      affine.shift = affine.center;
      for (std::size_t c = 0; c < mean.size(); ++c) {
        affine.scale.push_back(static_cast<T>(weight[c] * inv_std[c]));
      }
      cpu::apply_channels(geometry, gradient, affine, dst);
    }
  }
  if (given.needs.weight) {
    std::vector<double> for_weight(mean.size());
    for (std::size_t c = 0; c < mean.size(); ++c)
      for_weight[c] = sums[mean.size() + c] * inv_std[c];
    results.weight = parameter_gradient(for_weight.data(), channels, dtype);
  }
  if (given.needs.bias) results.bias = parameter_gradient(sums.data(), channels, dtype);
  if (given.needs.divisor) {
    const std::vector<double> for_divisor =
        divisor_gradient(copy_numbers<double>(given.divisor, geometry.channels, 1.0), given.eps,
                         inv_std, weight, sums.data() + mean.size());
    results.divisor = parameter_gradient(for_divisor.data(), channels, dtype);
  }
  return results;
}

// Groups -----------------------------------------------------------------------------------------

// Adds a group's part to the sums of gradient * normalized x and of gradient for each of its
// channels, and writes the gradient of x.
template <typename T>
void group_backward(const T* gradient, const T* x, const double* weight, std::int64_t members,
                    std::int64_t volume, double eps, double* weight_sums, double* bias_sums,
                    T* dst) {
  const std::int64_t count = members * volume;
  const cpu::GroupMoments moments = cpu::group_moments(x, count, eps);
  double sum = 0.0;
  double products = 0.0;
  for (std::int64_t m = 0; m < members; ++m) {
    double channel_sum = 0.0;
    double channel_products = 0.0;
    for (std::int64_t i = m * volume; i < (m + 1) * volume; ++i) {
      const auto from = static_cast<double>(gradient[i]);
      channel_sum += from;
      channel_products += from * ((static_cast<double>(x[i]) - moments.mean) * moments.inv_std);
    }
    bias_sums[m] += channel_sum;
    weight_sums[m] += channel_products;
    sum += channel_sum * weight[m];
    products += channel_products * weight[m];
  }
  const double mean = sum / static_cast<double>(count);
  const double slope = products / static_cast<double>(count);
  for (std::int64_t m = 0; m < members; ++m) {
    for (std::int64_t i = m * volume; i < (m + 1) * volume; ++i) {
      const double normalized = (static_cast<double>(x[i]) - moments.mean) * moments.inv_std;
      dst[i] = static_cast<T>(moments.inv_std * (static_cast<double>(gradient[i]) * weight[m] -
                                                 mean - normalized * slope));
    }
  }
}

template <typename T>
std::vector<Tensor> groups_backward(const GroupNormBackward& given, const GroupShape& shape) {
  if (given.x.numel() == 0) {  // whose other sizes may be any
    const auto zeros = [&](bool needed) {
      return needed ? Tensor::zeros(given.parameter_sizes, given.x.dtype()) : Tensor();
    };
    return {Tensor::zeros(given.x.sizes(), given.x.dtype()), zeros(given.needs_weight),
            zeros(given.needs_bias)};
  }
  const Tensor x = given.x.contiguous();
  const Tensor gradient = given.gradient.contiguous();
  const std::vector<double> weight = copy_numbers<double>(given.weight, shape.channels, 1.0);
  const Tensor result = Tensor::empty(x.sizes(), x.dtype());
  // Sums over blocks of samples that do not depend on the number of threads.
  const std::int64_t blocks = std::min<std::int64_t>(shape.samples, 16);
  const auto channels = static_cast<std::size_t>(shape.channels);
  std::vector<double> sums(2 * channels * static_cast<std::size_t>(blocks));
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      double* to = sums.data() + 2 * shape.channels * block;
      const std::int64_t last = (block + 1) * shape.samples / blocks;
      for (std::int64_t n = block * shape.samples / blocks; n < last; ++n) {
        for (std::int64_t group = 0; group < shape.groups; ++group) {
          const std::int64_t first = group * shape.members();
          const std::int64_t offset = (n * shape.channels + first) * shape.volume;
          group_backward(static_cast<const T*>(gradient.data_ptr()) + offset,
                         static_cast<const T*>(x.data_ptr()) + offset, weight.data() + first,
                         shape.members(), shape.volume, given.eps, to + first,
                         to + shape.channels + first, static_cast<T*>(result.data_ptr()) + offset);
        }
      }
    }
  });
  std::vector<double> totals(2 * channels);
  for (std::size_t i = 0; i < sums.size(); ++i) totals[i % totals.size()] += sums[i];
  std::vector<Tensor> results{result, {}, {}};
  if (given.needs_weight) {
    results[1] = parameter_gradient(totals.data(), given.parameter_sizes, x.dtype());
  }
  if (given.needs_bias) {
    results[2] =
        parameter_gradient(totals.data() + shape.channels, given.parameter_sizes, x.dtype());
  }
  return results;
}

}  // namespace

BatchNormGradients batch_norm_gradients(const BatchNormBackward& given) {
  const MemoryFormat format = given.x.suggested_format();
  const Tensor gradient = given.gradient.contiguous(format);
  const Tensor x = given.x.contiguous(format);
  if (x.device().is_cuda()) return cuda::batch_norm_gradients(given, gradient, x);
  return detail::visit_floats(
      x.dtype(), [&](auto zero) { return backward<decltype(zero)>(given, gradient, x); });
}

std::vector<Tensor> group_norm_gradients(const GroupNormBackward& given, const GroupShape& shape) {
  if (given.x.device().is_cuda()) return cuda::group_norm_gradients(given, shape);
  return detail::visit_floats(
      given.x.dtype(), [&](auto zero) { return groups_backward<decltype(zero)>(given, shape); });
}

}  // namespace quanta::norm
