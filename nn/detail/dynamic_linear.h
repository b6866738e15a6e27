#pragma once

// Private: linear layers with what stands around them in one pass, where quantize_dynamic has made
// int8 layers of them and nothing looks at what passes between (hooks, observers, gradients). The
// results are those of the calls one by one.

#include <array>

#include "quanta/nn/linear.h"

namespace quanta::nn::detail {

/// gelu(linear(x)).
Tensor gelu_of_linear(const Child<Linear>& linear, const Tensor& x);
/// addend + linear(x).
Tensor add_linear(const Tensor& addend, const Child<Linear>& linear, const Tensor& x);
/// {first(x), second(x), third(x)}.
std::array<Tensor, 3> linear_of_three(const Child<Linear>& first, const Child<Linear>& second,
                                      const Child<Linear>& third, const Tensor& x);

}  // namespace quanta::nn::detail
