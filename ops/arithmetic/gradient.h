#pragma once

// Private: sums, products and quotients on the tape.

#include <string_view>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// `out` = lhs op rhs, broadcast.
Tensor record_binary(std::string_view name, cpu::FloatBinary op, const Tensor& lhs,
                     const Tensor& rhs, Tensor out);

}  // namespace quanta::gradients
