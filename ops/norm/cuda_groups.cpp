#include "quanta/ops/norm/cuda_groups.h"

#include "quanta/ops/norm/cuda_kernels.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {
namespace {

using norm::NormCall;
using norm::NormGeometry;

NormalizeParams map_of(const NormCall& call, const NormGeometry& geometry) {
  NormalizeParams params;
  params.dtype = call.dtype;
  params.x = call.src;
  params.y = call.dst;
  params.sample = geometry.channels * geometry.volume;
  params.count = geometry.batch * params.sample;
  params.channels = geometry.channels;
  params.inner = geometry.channels_last ? 1 : geometry.volume;
  params.scale = call.weight;
  params.shift = call.bias;
  params.inv_scale = call.output.inv_scale;
  params.zero_point = call.output.zero_point;
  params.low = call.output.min;
  params.high = call.output.max;
  return params;
}

template <typename T>
Buffer buffer_of(Device device, std::int64_t count) {
  return {device, static_cast<std::size_t>(count) * sizeof(T)};
}

}  // namespace

void norm_groups(Device device, const NormGeometry& geometry, std::int64_t groups,
                 const NormCall& call, double scale, double eps) {
  NormMomentsParams params;
  params.dtype = call.dtype;
  params.x = call.src;
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
  NormalizeParams map = map_of(call, geometry);
  map.moments = params.moments;
  map.groups = groups;
  normalize(device, map);
}

void norm_each_row(Device device, std::int64_t rows, std::int64_t count, const NormCall& call,
                   double scale, double eps) {
  const Buffer moments = buffer_of<math::NormMoments>(device, rows);
  NormMomentsParams params;
  params.dtype = call.dtype;
  params.x = call.src;
  params.groups = rows;
  params.count = count;
  params.scale = scale;
  params.eps = eps;
  params.moments = moments.as<math::NormMoments>();
  find_norm_moments(device, params);
  NormGeometry geometry;
  geometry.batch = rows;
  geometry.channels = count;
  NormalizeParams map = map_of(call, geometry);
  map.moments = params.moments;
  normalize(device, map);
}

void batch_norm(Device device, const NormGeometry& geometry, const NormCall& call,
                const BatchNormParameters& parameters) {
  const Buffer terms = buffer_of<float>(device, 2 * geometry.channels);
  auto* const scale = terms.as<float>();
  float* const shift = scale + geometry.channels;
  find_batch_norm_terms(device, {.channels = geometry.channels,
                                 .mean = parameters.mean,
                                 .var = parameters.var,
                                 .weight = call.weight,
                                 .bias = call.bias,
                                 .eps = parameters.eps,
                                 .of_codes = call.dtype != DType::Float32,
                                 .scale_in = parameters.scale_in,
                                 .scale_out = parameters.scale_out,
                                 .scale = scale,
                                 .shift = shift,
                                 .statistics = parameters.statistics});
  NormalizeParams map = map_of(call, geometry);
  map.scale = scale;
  map.shift = shift;
  map.center = static_cast<float>(parameters.zero_point_in);
  normalize(device, map);
}

}  // namespace quanta::cuda
