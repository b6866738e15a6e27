#include "quanta/ops/cuda/library.h"

#include <utility>

#include "quanta/ops/cuda/library_loops.h"

namespace quanta::cuda {

std::string_view multiply_floats(Device device, const FloatProduct& product,
                                 const ProductOperands& operands) {
  if (device.is_emulated()) {
    loop_product(device, {.product = product, .operands = operands});
    return "loops";
  }
  libraries::multiply(device, product, operands);
  return "cublaslt";
}

std::string_view convolve_floats(Device device, const FloatConvolution& convolution,
                                 const ConvOperands& operands) {
  if (device.is_emulated()) {
    loop_convolution(device, {.convolution = convolution, .operands = operands});
    return "loops";
  }
  libraries::convolve(device, convolution, operands);
  return "cudnn";
}

bool convolves_with_bias(Device device, const FloatConvolution& convolution,
                         const ConvOperands& operands) {
  if (convolution.dtype == DType::Float32) return false;
  // In groups not, so that tests see what is done then.
  if (device.is_emulated()) return convolution.shape.groups == 1;
  return libraries::has_plan(device, convolution, operands);
}

cpu::ConvShape turned_around(const cpu::ConvShape& transposed) {
  cpu::ConvShape shape = transposed;
  shape.transposed = false;
  std::swap(shape.in_channels, shape.out_channels);
  for (int d = 0; d < 3; ++d) std::swap(shape.in[d], shape.out[d]);
  return shape;
}

}  // namespace quanta::cuda
