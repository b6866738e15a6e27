#include "quanta/ops/norm/gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/norm/cpu_batch_norm.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;

// The numbers of a parameter of `count` elements; `fallback` for each if it is undefined.
template <typename T>
std::vector<T> numbers_of(const Tensor& parameter, std::int64_t count, double fallback) {
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
  const auto n = static_cast<double>(count);
  for (std::size_t c = 0; c < channels; ++c) {
    const double a = weight[c] * inv_std[c];
    result.a.push_back(static_cast<T>(a));
    result.center.push_back(static_cast<T>(mean[c]));
    result.b.push_back(static_cast<T>(-a * inv_std[c] * inv_std[c] * sums[channels + c] / n));
    result.c.push_back(static_cast<T>(-a * sums[c] / n));
  }
  return result;
}

struct BatchNormInputs {
  Tensor gradient;
  Tensor x;
  std::vector<double> mean;
  std::vector<double> inv_std;
  std::vector<double> weight;
  std::vector<double> divisor;
  double eps = 0.0;
};

// The divisor d only scales eps: normalized x = (x - mean) * sign(d) / sqrt(var + eps * d^2), whose
// derivative by d is -eps * d * inv_std^2 times itself. `sums` are of gradient * (x - mean).
std::vector<double> divisor_gradient(const BatchNormInputs& inputs, const double* sums) {
  std::vector<double> result(inputs.divisor.size());
  for (std::size_t c = 0; c < result.size(); ++c) {
    const double inv_std = inputs.inv_std[c];
    result[c] =
        -inputs.eps * inputs.divisor[c] * inv_std * inv_std * inv_std * inputs.weight[c] * sums[c];
  }
  return result;
}

template <typename T>
std::vector<Tensor> batch_norm_backward(const BackwardContext& backward,
                                        const BatchNormInputs& inputs, Moments moments) {
  const cpu::ChannelGeometry geometry(inputs.x);
  const auto* gradient = static_cast<const T*>(inputs.gradient.data_ptr());
  const auto* x = static_cast<const T*>(inputs.x.data_ptr());
  const Dims channels{geometry.channels};
  std::vector<Tensor> results(5);
  std::vector<double> sums;
  const bool wants_parameters = backward.needs(1) || backward.needs(2) || backward.needs(3);
  if (wants_parameters || moments == Moments::OfBatch) {
    const std::vector<T> center(inputs.mean.begin(), inputs.mean.end());
    sums = cpu::channel_gradient_sums(geometry, gradient, x, center);
  }
  if (backward.needs(0)) {
    results[0] = Tensor::empty(inputs.x.sizes(), inputs.x.dtype(), inputs.x.suggested_format());
    auto* dst = static_cast<T*>(results[0].data_ptr());
    if (moments == Moments::OfBatch) {
      cpu::apply_channel_gradient(geometry, gradient, x,
                                  batch_norm_gradient<T>(sums, geometry.count(), inputs.mean,
                                                         inputs.inv_std, inputs.weight),
                                  dst);
    } else {
      cpu::ChannelAffine<T> affine;
      affine.center.assign(inputs.mean.size(), T{0});
      affine.shift = affine.center;
      for (std::size_t c = 0; c < inputs.mean.size(); ++c) {
        affine.scale.push_back(static_cast<T>(inputs.weight[c] * inputs.inv_std[c]));
      }
      cpu::apply_channels(geometry, gradient, affine, dst);
    }
  }
  if (backward.needs(1)) {
    std::vector<double> weight_gradient(inputs.mean.size());
    for (std::size_t c = 0; c < weight_gradient.size(); ++c) {
      weight_gradient[c] = sums[weight_gradient.size() + c] * inputs.inv_std[c];
    }
    results[1] = parameter_gradient(weight_gradient.data(), channels, inputs.x.dtype());
  }
  if (backward.needs(2)) {
    results[2] = parameter_gradient(sums.data(), channels, inputs.x.dtype());
  }
  if (backward.needs(3)) {
    const std::vector<double> gradients =
        divisor_gradient(inputs, sums.data() + inputs.mean.size());
    results[3] = parameter_gradient(gradients.data(), channels, inputs.x.dtype());
  }
  // The mean takes the shift out again.
  if (backward.needs(4)) results[4] = Tensor::zeros(channels, inputs.x.dtype());
  return results;
}

// Groups -----------------------------------------------------------------------------------------

struct GroupMoments {
  double mean = 0.0;
  double inv_std = 0.0;
};

template <typename T>
GroupMoments moments_of(const T* x, std::int64_t count, double eps) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(count);
  double squares = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(x[i]) - mean;
    squares += difference * difference;
  }
  return {mean, 1.0 / std::sqrt(squares / static_cast<double>(count) + eps)};
}

// Adds a group's part to the sums of gradient * normalized x and of gradient for each of its
// channels, and writes the gradient of x.
template <typename T>
void group_backward(const T* gradient, const T* x, const double* weight, std::int64_t members,
                    std::int64_t volume, double eps, double* weight_sums, double* bias_sums,
                    T* dst) {
  const std::int64_t count = members * volume;
  const GroupMoments moments = moments_of(x, count, eps);
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
std::vector<Tensor> groups_backward(const BackwardContext& backward, const GroupShape& shape,
                                    const Dims& sizes, double eps) {
  const Tensor x = backward.saved(0).contiguous();
  const Tensor gradient = backward.grad().contiguous();
  const std::vector<double> weight = numbers_of<double>(backward.saved(1), shape.channels, 1.0);
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
                         shape.members(), shape.volume, eps, to + first,
                         to + shape.channels + first, static_cast<T*>(result.data_ptr()) + offset);
        }
      }
    }
  });
  std::vector<double> totals(2 * channels);
  for (std::size_t i = 0; i < sums.size(); ++i) totals[i % totals.size()] += sums[i];
  std::vector<Tensor> results{result, {}, {}};
  if (backward.needs(1)) results[1] = parameter_gradient(totals.data(), sizes, x.dtype());
  if (backward.needs(2)) {
    results[2] = parameter_gradient(totals.data() + shape.channels, sizes, x.dtype());
  }
  return results;
}

}  // namespace

Tensor record_batch_norm(const Tensor& x, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& weight, const Tensor& bias, Moments moments, Tensor y,
                         const Quotient& quotient) {
  return autograd::record("batch_norm", {x, weight, bias, quotient.divisor, quotient.shift},
                          std::move(y), {x, mean, inv_std, weight, quotient.divisor},
                          [moments, eps = quotient.eps](const BackwardContext& backward) {
                            const Tensor saved = backward.saved(0);
                            const MemoryFormat format = saved.suggested_format();
                            BatchNormInputs inputs{
                                backward.grad().contiguous(format),
                                saved.contiguous(format),
                                numbers_of<double>(backward.saved(1), saved.size(1), 0.0),
                                numbers_of<double>(backward.saved(2), saved.size(1), 1.0),
                                numbers_of<double>(backward.saved(3), saved.size(1), 1.0),
                                numbers_of<double>(backward.saved(4), saved.size(1), 1.0),
                                eps};
                            return detail::visit_floats(saved.dtype(), [&](auto zero) {
                              return batch_norm_backward<decltype(zero)>(backward, inputs, moments);
                            });
                          });
}

Tensor normalize_groups(const Tensor& x, const GroupShape& shape, const Tensor& weight,
                        const Tensor& bias, double eps) {
  const Tensor dense = x.contiguous();
  const Tensor result = Tensor::empty(x.sizes(), DType::Float64);
  const std::vector<double> scale = numbers_of<double>(weight, shape.channels, 1.0);
  const std::vector<double> shift = numbers_of<double>(bias, shape.channels, 0.0);
  const auto* src = dense.data<double>();
  auto* dst = result.mutable_data<double>();
  for (std::int64_t item = 0; item < shape.samples * shape.groups; ++item) {
    const std::int64_t offset = item * shape.count();
    const GroupMoments moments = moments_of(src + offset, shape.count(), eps);
    for (std::int64_t i = 0; i < shape.count(); ++i) {
      const auto c =
          static_cast<std::size_t>(item % shape.groups * shape.members() + i / shape.volume);
      dst[offset + i] = (src[offset + i] - moments.mean) * moments.inv_std * scale[c] + shift[c];
    }
  }
  return result;
}

Tensor record_group_norm(std::string_view op, const Tensor& x, const GroupShape& shape,
                         const Tensor& weight, const Tensor& bias, double eps, Tensor y) {
  const Dims sizes = weight.defined() ? weight.sizes() : bias.defined() ? bias.sizes() : Dims{};
  return autograd::record(op, {x, weight, bias}, std::move(y), {x, weight},
                          [shape, sizes, eps](const BackwardContext& backward) {
                            return detail::visit_floats(backward.saved(0).dtype(), [&](auto zero) {
                              return groups_backward<decltype(zero)>(backward, shape, sizes, eps);
                            });
                          });
}

}  // namespace quanta::gradients
