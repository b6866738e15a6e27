#pragma once

// Private: the tape's part of matrix products.

#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// Records that y = x W^T + b.
Tensor record_linear(Tensor y, const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Records that `y` is the product of `lhs` and `rhs` with matmul's rules for vectors and
/// broadcasting.
Tensor record_matmul(Tensor y, const Tensor& lhs, const Tensor& rhs);

}  // namespace quanta::gradients
