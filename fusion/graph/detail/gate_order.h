#pragma once

// Private: the rows of recurrent weights in ONNX's order.

#include <cstddef>

#include "quanta/runtime/tensor.h"

namespace quanta::graph::detail {

/// The gates along dimension 0: i, o, f, c of i, f, g, o (four of them) and z, r, h of r, z, n
/// (three); one gate stays as it is.
Tensor in_onnx_order(const Tensor& x, std::size_t gates);

}  // namespace quanta::graph::detail
