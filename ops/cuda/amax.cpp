#include "quanta/ops/cuda/amax.h"

#include <bit>

#include "quanta/ops/cuda/device_data.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

AmaxMapParams params_of(const Tensor& x, const Tensor& amax, const Tensor& out) {
  AmaxMapParams params;
  params.walk = strided_walk(out, amax.defined() ? amax.expand(x.sizes()) : out);
  params.x = floats_of(x);
  params.amax = floats_of(amax);
  params.out = reinterpret_cast<float*>(out.device_ptr());
  return params;
}

}  // namespace

void map_amax(const detail::AmaxFunction& function, const Tensor& x, const Tensor& amax,
              const Tensor& out) {
  if (out.numel() == 0) return;
  AmaxMapParams params = params_of(x, amax, out);
  params.function = function;
  map_by_amax(out.device(), params);
}

void mask_by_amax(const Tensor& x, const Tensor& grad, const Tensor& amax, const Tensor& out) {
  if (out.numel() == 0) return;
  AmaxMapParams params = params_of(x, amax, out);
  params.grad = floats_of(grad);
  map_by_amax(out.device(), params);
}

void gradients_of_amax(const Tensor& x, const Tensor& grad, const Tensor& amax, const Tensor& out) {
  if (out.numel() == 0) return;
  AmaxMapParams params = params_of(x, amax, out);
  params.grad = floats_of(grad);
  params.of_amax = true;
  map_by_amax(out.device(), params);
}

float lowest_negative(const Tensor& x) {
  if (x.numel() == 0) return 0.0F;
  std::int32_t magnitude = 0;
  const Buffer found(x.device(), &magnitude, sizeof(magnitude));
  find_negative(
      x.device(),
      {.count = x.numel(), .floats = floats_of(x), .magnitude = found.as<std::int32_t>()});
  driver(x.device()).copy_to_host(&magnitude, found.as<void>(), sizeof(magnitude));
  return magnitude == 0 ? 0.0F : -std::bit_cast<float>(magnitude);
}

}  // namespace quanta::cuda
