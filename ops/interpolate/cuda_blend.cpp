#include "quanta/ops/interpolate/cuda_blend.h"

#include <algorithm>

namespace quanta::cuda {

void blend(Device device, const cpu::ResampleGeometry& geometry,
           const std::array<BlendAxis, 3>& axes, std::size_t spatial, DType dtype,
           std::int32_t zero_point, bool is_fused, const void* x, void* y) {
  BlendParams params;
  params.pixel = geometry.channels_last ? geometry.channels : 1;
  params.count = geometry.batch * geometry.channels;
  for (std::size_t d = 0; d < 3; ++d) {
    params.input[d] = geometry.input[d];
    params.output[d] = geometry.output[d];
    params.axes[d] = axes[d];
    params.count *= geometry.output[d];
  }
  params.spatial = static_cast<int>(spatial);
  params.dtype = dtype;
  params.zero_point = static_cast<float>(zero_point);
  params.is_fused = is_fused;
  params.single = math::first_single_channel(params.pixel);
  params.x = x;
  params.y = y;
  // Four channels at a time, where their addresses allow it.
  const auto addresses = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y);
  if (params.pixel % 4 == 0 && addresses % (4 * item_size(dtype)) == 0) {
    params.pack = 4;
    params.pixel /= 4;
    params.count /= 4;
  }
  blend_packs(device, params);
}

}  // namespace quanta::cuda
