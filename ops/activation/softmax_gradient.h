#pragma once

#include "quanta/runtime/tensor.h"

// Private: the gradient of softmax, which attention needs too.

namespace quanta::activation {

/// The gradient for the argument, from the gradient for the result `y`, along `axis`.
Tensor softmax_gradient(const Tensor& gradient, const Tensor& y, std::int64_t axis);

}  // namespace quanta::activation
