#pragma once

// Private: the tape's part of convolutions.

#include "quanta/ops/conv/geometry.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// Records that `y` is the convolution (transposed too) of `x` with the weight and bias.
Tensor record_conv(Tensor y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const detail::ConvGeometry& geometry);

}  // namespace quanta::gradients
