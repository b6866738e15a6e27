#include "quanta/ops/norm/cuda_groups.h"

#include "quanta/ops/norm/cuda_kernels.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {
namespace {

using norm::NormGeometry;

NormalizeParams map_of(const NormTensors& tensors, const NormGeometry& geometry) {
  NormalizeParams params;
  params.dtype = tensors.dtype;
  params.x = tensors.x;
  params.y = tensors.y;
  params.sample = geometry.channels * geometry.volume;
  params.count = geometry.batch * params.sample;
  params.channels = geometry.channels;
  params.inner = geometry.channels_last ? 1 : geometry.volume;
  params.parameters = tensors.parameters;
  params.scale = tensors.weight;
  params.shift = tensors.bias;
  params.inv_scale = tensors.output.inv_scale;
  params.zero_point = tensors.output.zero_point;
  params.low = tensors.output.min;
  params.high = tensors.output.max;
  return params;
}

template <typename T>
Buffer buffer_of(Device device, std::int64_t count) {
  return {device, static_cast<std::size_t>(count) * sizeof(T)};
}

}  // namespace

void norm_groups(Device device, const NormGeometry& geometry, std::int64_t groups,
                 const NormTensors& tensors, double scale, double eps) {
  NormMomentsParams params;
  params.dtype = tensors.dtype;
  params.x = tensors.x;
  params.groups = geometry.batch * groups;
  params.channels = geometry.channels;
  params.members = geometry.channels / groups;
  params.volume = geometry.volume;
  params.count = params.members * geometry.volume;
  params.scale = scale;
  params.eps = eps;
  const Buffer moments = buffer_of<math::NormMoments>(device, params.groups);
  params.moments = moments.as<math::NormMoments>();
  if (geometry.channels_last) {
    const Buffer sums = buffer_of<NormSums>(device, geometry.batch * geometry.channels);
    params.sums = sums.as<NormSums>();
    find_norm_channel_sums(device, params);
    join_norm_channel_sums(device, params);
  } else {
    find_norm_moments(device, params);
  }
  NormalizeParams map = map_of(tensors, geometry);
  map.moments = params.moments;
  map.groups = groups;
  normalize(device, map);
}

void norm_each_row(Device device, std::int64_t rows, std::int64_t count, const NormTensors& tensors,
                   double scale, double eps) {
  const Buffer moments = buffer_of<math::NormMoments>(device, rows);
  NormMomentsParams params;
  params.dtype = tensors.dtype;
  params.x = tensors.x;
  params.groups = rows;
  params.count = count;
  params.scale = scale;
  params.eps = eps;
  params.moments = moments.as<math::NormMoments>();
  find_norm_moments(device, params);
  NormGeometry geometry;
  geometry.batch = rows;
  geometry.channels = count;
  NormalizeParams map = map_of(tensors, geometry);
  map.moments = params.moments;
  normalize(device, map);
}

void batch_norm(Device device, const NormGeometry& geometry, const NormTensors& tensors,
                const BatchNormParameters& parameters) {
  const Buffer terms = buffer_of<float>(device, 2 * geometry.channels);
  auto* const scale = terms.as<float>();
  float* const shift = scale + geometry.channels;
  find_batch_norm_terms(device, {.channels = geometry.channels,
                                 .dtype = tensors.parameters,
                                 .mean = parameters.mean,
                                 .var = parameters.var,
                                 .weight = tensors.weight,
                                 .bias = tensors.bias,
                                 .eps = parameters.eps,
                                 .of_codes = is_quantized(tensors.dtype),
                                 .scale_in = parameters.scale_in,
                                 .scale_out = parameters.scale_out,
                                 .scale = scale,
                                 .shift = shift,
                                 .statistics = parameters.statistics});
  NormalizeParams map = map_of(tensors, geometry);
  map.parameters = DType::Float32;
  map.scale = scale;
  map.shift = shift;
  map.center = static_cast<float>(parameters.zero_point_in);
  normalize(device, map);
}

}  // namespace quanta::cuda
