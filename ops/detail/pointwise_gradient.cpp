#include "quanta/ops/detail/pointwise_gradient.h"

namespace quanta::detail {
namespace {

const float* floats(const Tensor& x) { return reinterpret_cast<const float*>(x.device_ptr()); }

// start(gradients, values, out) with all three in one order.
template <typename Start>
Tensor with_pair(const Tensor& gradient, const Tensor& value, const Start& start) {
  if (value.dtype() != DType::Float32) {  // floats of 16 bits, which are floats exactly
    return with_pair(gradient.to(DType::Float32), value.to(DType::Float32), start)
        .to(value.dtype());
  }
  const MemoryFormat format = value.suggested_format();
  Tensor out = Tensor::empty(value.sizes(), DType::Float32, format, value.device());
  const Tensor from = gradient.contiguous(format);
  const Tensor at = value.contiguous(format);
  start(floats(from), floats(at), reinterpret_cast<float*>(out.device_ptr()));
  return out;
}

}  // namespace

Tensor slope_on_cuda(const cuda::FloatCall& call, const Tensor& gradient, const Tensor& value) {
  return with_pair(gradient, value, [&](const float* from, const float* at, float* dst) {
    cuda::slope_floats(
        value.device(),
        {.call = call, .count = value.numel(), .gradient = from, .x = at, .dst = dst});
  });
}

Tensor gate_on_cuda(const Tensor& gradient, const Tensor& value, const cuda::GateBounds& bounds) {
  return with_pair(gradient, value, [&](const float* from, const float* at, float* dst) {
    cuda::gate_floats(
        value.device(),
        {.bounds = bounds, .count = value.numel(), .gradient = from, .x = at, .dst = dst});
  });
}

}  // namespace quanta::detail
