#pragma once

// Private: what the operations on two tensors of codes ask of them.

#include <cstdint>
#include <string_view>

#include "quanta/runtime/operation.h"

namespace quanta::arithmetic {

/// Checks both operands, and adds the result: of their dtype and broadcast sizes, with the given
/// parameters.
void infer_code_binary(std::string_view op, const Tensor& lhs, const Tensor& rhs, double scale,
                       std::int64_t zero_point, Results& out);

}  // namespace quanta::arithmetic
