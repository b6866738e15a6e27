#include "quanta/ops/cuda/float_map.h"

#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

void map(const FloatCall& call, const Tensor& x, const Tensor& out) {
  MapFloatsParams params{.call = call,
                         .count = x.numel(),
                         .x = reinterpret_cast<const float*>(x.device_ptr()),
                         .y = reinterpret_cast<float*>(out.device_ptr())};
  const auto places =
      reinterpret_cast<std::uintptr_t>(params.x) | reinterpret_cast<std::uintptr_t>(params.y);
  params.aligned = places % 16 == 0;
  map_floats(x.device(), params);
}

}  // namespace quanta::cuda
