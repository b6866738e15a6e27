#pragma once

// Private: the tape's part of matrix products.

#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// Records that y = x W^T + b.
Tensor record_linear(Tensor y, const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace quanta::gradients
