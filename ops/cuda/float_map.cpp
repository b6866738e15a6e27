#include "quanta/ops/cuda/float_map.h"

#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

void map(const FloatCall& call, const Tensor& x, const Tensor& out) {
  MapFloatsParams params{.call = call,
                         .dtype = x.dtype(),
                         .count = x.numel(),
                         .x = x.device_ptr(),
                         .y = out.device_ptr()};
  const auto places =
      reinterpret_cast<std::uintptr_t>(params.x) | reinterpret_cast<std::uintptr_t>(params.y);
  params.aligned = places % 16 == 0;
  map_floats(x.device(), params);
}

}  // namespace quanta::cuda
