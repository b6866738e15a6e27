#pragma once

#include "quanta/runtime/tensor.h"

namespace quanta::autograd::detail {

/// Whether nobody else sees the elements, each of which lies in a place of its own.
bool is_exclusive(const Tensor& tensor);

/// sum += gradient, of the same sizes and dtype. An undefined sum becomes the gradient itself,
/// shared until the next one comes.
void accumulate(Tensor& sum, const Tensor& gradient);

}  // namespace quanta::autograd::detail
