#include "quanta/ops/norm/cuda_gradient.h"

#include <algorithm>

#include "quanta/ops/cuda/device_data.h"
#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/ops/norm/checks.h"
#include "quanta/ops/norm/cuda_gradient_kernels.h"
#include "quanta/ops/norm/cuda_kernels.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {
namespace {

using norm::NormGeometry;
using quanta::detail::is_float_of_16_bits;
using quanta::detail::narrowed;
using quanta::detail::widened;

template <typename T>
Buffer buffer_of(Device device, std::int64_t count) {
  return {device, static_cast<std::size_t>(count) * sizeof(T)};
}

// Dense, or undefined.
Tensor dense(const Tensor& parameter) {
  return parameter.defined() ? parameter.contiguous() : parameter;
}

Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.sizes(), x.dtype(), x.suggested_format(), x.device());
}

// Of a result that is wanted, or undefined.
Tensor empty_if(bool wanted, const Dims& sizes, const Tensor& like) {
  return wanted ? Tensor::empty(sizes, like.dtype(), MemoryFormat::Contiguous, like.device())
                : Tensor();
}

// Sums of each channel, on the device while this lives.
struct Sums {
  Sums(Device device, ChannelSumsParams params) {
    constexpr std::int64_t kOfChunk = 4096;  // for which another block pays
    chunks = static_cast<int>(
        std::clamp<std::int64_t>(params.count / kOfChunk, 1, ChannelSumsParams::kMostChunks));
    memory = buffer_of<double>(device, 2 * params.channels * chunks);
    params.chunks = chunks;
    params.sums = memory.as<double>();
    find_channel_sums(device, params);
  }

  int chunks = 1;
  Buffer memory;
};

ChannelSumsParams sums_of(const NormGeometry& geometry, const Tensor& gradient, const Tensor& x) {
  ChannelSumsParams params;
  params.gradient = floats_of(gradient);
  params.x = floats_of(x);
  params.count = geometry.batch * geometry.volume;
  params.channels = geometry.channels;
  params.volume = geometry.volume;
  params.channels_last = geometry.channels_last;
  return params;
}

// Of floats of 16 bits.
void train_in_floats(const NormGeometry& geometry, const Tensor& x, const BatchNormTraining& given,
                     const Tensor& y, const Tensor& mean, const Tensor& inv_std) {
  const BatchNormTraining wide{.running_mean = widened(given.running_mean),
                               .running_var = widened(given.running_var),
                               .weight = widened(given.weight),
                               .bias = widened(given.bias),
                               .divisor = widened(given.divisor),
                               .shift = widened(given.shift),
                               .eps = given.eps,
                               .momentum = given.momentum};
  const Tensor result = Tensor::empty(y.sizes(), DType::Float32, y.suggested_format(), y.device());
  batch_norm_train(geometry, widened(x), wide, result, mean, inv_std);
  y.copy_(result);
  if (given.running_mean.defined()) given.running_mean.copy_(wide.running_mean);
  if (given.running_var.defined()) given.running_var.copy_(wide.running_var);
}

}  // namespace

void batch_norm_train(const NormGeometry& geometry, const Tensor& x, const BatchNormTraining& given,
                      const Tensor& y, const Tensor& mean, const Tensor& inv_std) {
  if (is_float_of_16_bits(x.dtype())) return train_in_floats(geometry, x, given, y, mean, inv_std);
  const Device device = x.device();
  // Sums of x and of x * (x - 0).
  const Sums sums(device, sums_of(geometry, x, x));
  const Buffer moments = buffer_of<math::NormMoments>(device, geometry.channels);
  const Buffer scale = buffer_of<float>(device, geometry.channels);
  const Tensor weight = dense(given.weight);
  const Tensor bias = dense(given.bias);
  const Tensor divisor = dense(given.divisor);
  const Tensor shift = dense(given.shift);
  const Tensor running_mean = dense(given.running_mean);
  const Tensor running_var = dense(given.running_var);
  const Tensor moved_mean = running_mean.defined() ? empty_like(running_mean) : Tensor();
  const Tensor moved_var = running_var.defined() ? empty_like(running_var) : Tensor();
  find_batch_norm_training(device, {.channels = geometry.channels,
                                    .count = geometry.batch * geometry.volume,
                                    .chunks = sums.chunks,
                                    .sums = sums.memory.as<double>(),
                                    .weight = floats_of(weight),
                                    .divisor = floats_of(divisor),
                                    .shift = floats_of(shift),
                                    .eps = given.eps,
                                    .momentum = given.momentum,
                                    .running_mean = floats_of(running_mean),
                                    .running_var = floats_of(running_var),
                                    .moved_mean = floats_of(moved_mean),
                                    .moved_var = floats_of(moved_var),
                                    .mean = doubles_of(mean),
                                    .inv_std = doubles_of(inv_std),
                                    .moments = moments.as<math::NormMoments>(),
                                    .scale = scale.as<float>()});
  NormalizeParams map;
  map.dtype = x.dtype();
  map.x = x.device_ptr();
  map.y = y.device_ptr();
  map.count = x.numel();
  map.channels = geometry.channels;
  map.inner = geometry.channels_last ? 1 : geometry.volume;
  map.sample = std::max<std::int64_t>(1, map.count);  // all samples share the moments
  map.moments = moments.as<math::NormMoments>();
  map.groups = geometry.channels;
  map.scale = scale.as<float>();
  map.shift = floats_of(bias);
  normalize(device, map);
  if (moved_mean.defined()) given.running_mean.copy_(moved_mean);
  if (moved_var.defined()) given.running_var.copy_(moved_var);
}

norm::BatchNormGradients batch_norm_gradients(const norm::BatchNormBackward& given,
                                              const Tensor& gradient, const Tensor& x) {
  if (is_float_of_16_bits(x.dtype())) {
    norm::BatchNormBackward wide = given;
    wide.weight = widened(given.weight);
    wide.divisor = widened(given.divisor);
    const norm::BatchNormGradients all =
        cuda::batch_norm_gradients(wide, widened(gradient), widened(x));
    const DType dtype = x.dtype();
    return {narrowed(all.x, dtype), narrowed(all.weight, dtype), narrowed(all.bias, dtype),
            narrowed(all.divisor, dtype)};
  }
  const Device device = x.device();
  const NormGeometry geometry(x, x.suggested_format());
  const bool of_batch = given.moments == norm::Moments::OfBatch;
  const Tensor mean = given.mean.contiguous();
  const Tensor inv_std = given.inv_std.contiguous();
  const Tensor weight = dense(given.weight);
  const Tensor divisor = dense(given.divisor);
  const Dims channels{geometry.channels};
  norm::BatchNormGradients results;
  results.weight = empty_if(given.needs.weight, channels, x);
  results.bias = empty_if(given.needs.bias, channels, x);
  results.divisor = empty_if(given.needs.divisor, channels, x);
  ChannelSumsParams sums_params = sums_of(geometry, gradient, x);
  sums_params.center = doubles_of(mean);
  const Sums sums(device, sums_params);
  const Buffer slopes = buffer_of<math::BatchNormSlope>(device, geometry.channels);
  find_channel_slopes(device, {.channels = geometry.channels,
                               .count = sums_params.count,
                               .chunks = sums.chunks,
                               .sums = sums.memory.as<double>(),
                               .mean = doubles_of(mean),
                               .inv_std = doubles_of(inv_std),
                               .weight = floats_of(weight),
                               .divisor = floats_of(divisor),
                               .eps = given.eps,
                               .of_batch = of_batch,
                               .slopes = slopes.as<math::BatchNormSlope>(),
                               .for_weight = floats_of(results.weight),
                               .for_bias = floats_of(results.bias),
                               .for_divisor = floats_of(results.divisor)});
  if (given.needs.x) {
    results.x = empty_like(x);
    apply_channel_slopes(device, {.count = x.numel(),
                                  .channels = geometry.channels,
                                  .inner = geometry.channels_last ? 1 : geometry.volume,
                                  .gradient = floats_of(gradient),
                                  .x = of_batch ? floats_of(x) : nullptr,
                                  .mean = doubles_of(mean),
                                  .slopes = slopes.as<math::BatchNormSlope>(),
                                  .y = floats_of(results.x)});
  }
  return results;
}

std::vector<Tensor> group_norm_gradients(const norm::GroupNormBackward& given,
                                         const norm::GroupShape& shape) {
  if (is_float_of_16_bits(given.x.dtype())) {
    norm::GroupNormBackward wide = given;
    wide.gradient = widened(given.gradient);
    wide.x = widened(given.x);
    wide.weight = widened(given.weight);
    std::vector<Tensor> all = cuda::group_norm_gradients(wide, shape);
    for (Tensor& gradient : all) gradient = narrowed(gradient, given.x.dtype());
    return all;
  }
  const Tensor x = given.x.contiguous();
  const Tensor gradient = given.gradient.contiguous();
  const Tensor weight = dense(given.weight);
  const Device device = x.device();
  const std::int64_t groups = shape.samples * shape.groups;
  const Buffer moments = buffer_of<WideMoments>(device, groups);
  const Tensor result = empty_like(x);
  find_group_slopes(device, {.gradient = floats_of(gradient),
                             .x = floats_of(x),
                             .weight = floats_of(weight),
                             .groups = groups,
                             .channels = shape.channels,
                             .members = shape.members(),
                             .volume = shape.volume,
                             .eps = given.eps,
                             .moments = moments.as<WideMoments>(),
                             .y = floats_of(result)});
  std::vector<Tensor> results{result, empty_if(given.needs_weight, given.parameter_sizes, x),
                              empty_if(given.needs_bias, given.parameter_sizes, x)};
  if (!given.needs_weight && !given.needs_bias) return results;
  ChannelSumsParams params;
  params.gradient = floats_of(gradient);
  params.x = floats_of(x);
  params.count = shape.samples * shape.volume;
  params.channels = shape.channels;
  params.volume = shape.volume;
  params.channels_last = shape.volume == 1;
  params.moments = moments.as<WideMoments>();
  params.groups = shape.groups;
  const Sums sums(device, params);
  find_channel_slopes(device, {.channels = shape.channels,
                               .count = params.count,
                               .chunks = sums.chunks,
                               .sums = sums.memory.as<double>(),
                               .for_weight = floats_of(results[1]),
                               .for_bias = floats_of(results[2])});
  return results;
}

}  // namespace quanta::cuda
