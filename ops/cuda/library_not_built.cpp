// Stands for NVIDIA's libraries in a build without CUDA.

#include "quanta/ops/cuda/library.h"
#include "quanta/runtime/cuda/driver.h"

namespace quanta::cuda::libraries {

// There is no such device, and driver() says why.
void multiply(Device device, const FloatProduct&, const ProductOperands&) { driver(device); }
void convolve(Device device, const FloatConvolution&, const ConvOperands&) { driver(device); }
bool has_plan(Device device, const FloatConvolution&, const ConvOperands&) {
  driver(device);
  return false;
}

}  // namespace quanta::cuda::libraries
