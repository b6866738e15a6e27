#include "quanta/ops/elementwise/cuda_numbers.h"

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

void map(NumberFunction function, const Tensor& x, const Tensor& out) {
  map_numbers(x.device(), {.function = function,
                           .dtype = x.dtype(),
                           .count = x.numel(),
                           .x = x.device_ptr(),
                           .y = out.device_ptr()});
}

void combine(NumberPairFunction function, const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  const Dims lhs_strides = cpu::broadcast_strides(lhs, out.sizes());
  const Dims rhs_strides = cpu::broadcast_strides(rhs, out.sizes());
  combine_numbers(out.device(),
                  {.function = function,
                   .dtype = out.dtype(),
                   .walk = {out.sizes(), {&out.strides(), &lhs_strides, &rhs_strides}},
                   .lhs = lhs.device_ptr(),
                   .rhs = rhs.device_ptr(),
                   .out = out.device_ptr()});
}

}  // namespace quanta::cuda
