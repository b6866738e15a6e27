#include "quanta/ops/cuda/floats.h"

#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

void combine(FloatStep step, const Tensor& lhs, const Tensor& rhs, float number,
             const Tensor& out) {
  FloatBinaryParams params;
  params.step = step;
  params.number = number;
  params.rank = static_cast<int>(out.sizes().size());
  params.count = out.numel();
  const Tensor left = lhs.expand(out.sizes());
  const Tensor right = rhs.defined() ? rhs.expand(out.sizes()) : left;
  for (std::size_t d = 0; d < out.sizes().size(); ++d) {
    params.sizes[d] = out.sizes()[d];
    params.strides[0][d] = left.strides()[d];
    params.strides[1][d] = right.strides()[d];
    params.strides[2][d] = out.strides()[d];
  }
  params.dtype = out.dtype();
  params.lhs = lhs.device_ptr();
  params.rhs = rhs.defined() ? rhs.device_ptr() : nullptr;
  params.out = out.device_ptr();
  combine_floats(out.device(), params);
}

void clamp(const Tensor& x, const Tensor& out, float low, float high) {
  clamp_floats(x.device(), {.dtype = x.dtype(),
                            .count = x.numel(),
                            .x = x.device_ptr(),
                            .y = out.device_ptr(),
                            .low = low,
                            .high = high});
}

}  // namespace quanta::cuda
