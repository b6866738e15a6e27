#pragma once

// Private: float convolutions and their gradients on a CUDA device. Sums are taken in another order
// than on the CPU: ops/cuda/library.h has the bound. Images are dense and channels-last, weights in
// torch's order with any strides.

#include <string_view>

#include "quanta/ops/conv/geometry.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

/// Of any kind: transposed, grouped, of one to three dimensions. Gives the name of what calculates
/// it. The bias may be undefined. Of Float16 and BFloat16, the sums are rounded once,
/// with the bias in them.
std::string_view convolve(const detail::ConvGeometry& geometry, const Tensor& x,
                          const Tensor& weight, const Tensor& bias, Fusion fusion,
                          const Tensor& out);

/// From the gradient of the result; channels-last of these sizes.
Tensor conv_input_gradient(const detail::ConvGeometry& geometry, const Tensor& weight,
                           const Tensor& gradient, const Dims& x_sizes);
/// Contiguous of these sizes.
Tensor conv_weight_gradient(const detail::ConvGeometry& geometry, const Tensor& x,
                            const Tensor& gradient, const Dims& weight_sizes);
/// [C], the sums over all but the channels: the gradient of the bias.
Tensor channel_sums(const Tensor& image);

}  // namespace quanta::cuda
