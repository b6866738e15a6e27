#pragma once

// Private: convolutions whose padding is not with zeros.

#include <string_view>

#include "quanta/nn/conv.h"

namespace quanta::nn::detail {

/// "zeros", "reflect", ... as torch writes them.
std::string_view to_string(PaddingMode mode);

/// `x` with `padding` (one number per spatial dimension, for both sides) taken from itself; not for
/// Zeros. Throws ArgumentError `op: x: ...` for a wrong number of dimensions.
Tensor pad_input(std::string_view op, const Tensor& x, const Dims& padding, PaddingMode mode);

}  // namespace quanta::nn::detail
