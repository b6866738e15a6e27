#pragma once

// Private: the gradients of a convolution.

#include <vector>

#include "quanta/ops/conv/geometry.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/tensor.h"

namespace quanta::conv {

/// Those of x, weight and bias, from that of the result; x and the weight are arguments 0 and 1 of
/// `context`. Transposed convolutions too.
std::vector<Tensor> conv_gradient(const detail::ConvGeometry& geometry, const Tensor& gradient,
                                  const autograd::BackwardContext& context);

}  // namespace quanta::conv
