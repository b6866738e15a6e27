#pragma once

// Private: the gradients of sums, products and quotients.

#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/operation.h"

namespace quanta::arithmetic {

/// The gradient of lhs op rhs with broadcasting; `needed` as in Operation::gradient_use.
GradientUse binary_gradient_use(cpu::FloatBinary op, std::uint64_t needed);
std::vector<Tensor> binary_gradient(cpu::FloatBinary op, const autograd::BackwardContext& context);

}  // namespace quanta::arithmetic
