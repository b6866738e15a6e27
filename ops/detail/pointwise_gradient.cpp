#include "quanta/ops/detail/pointwise_gradient.h"

#include "quanta/ops/cuda/device_data.h"
#include "quanta/ops/detail/cuda_floats.h"

namespace quanta::detail {
namespace {

// start(gradients, values, out) with all three in one order.
template <typename Start>
Tensor with_pair(const Tensor& gradient, const Tensor& value, const Start& start) {
  if (is_float_of_16_bits(value.dtype())) {  // which are floats exactly
    return narrowed(with_pair(widened(gradient), widened(value), start), value.dtype());
  }
  const MemoryFormat format = value.suggested_format();
  Tensor out = Tensor::empty(value.sizes(), DType::Float32, format, value.device());
  const Tensor from = gradient.contiguous(format);
  const Tensor at = value.contiguous(format);
  start(cuda::floats_of(from), cuda::floats_of(at), cuda::floats_of(out));
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
