#pragma once

// Private: between floats and codes over whole tensors, which are dense and of one memory order
// (sub-byte codes: contiguous).

#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// The codes of `x`, Float32, under the parameters of `out`: one scale, or one per channel.
void quantize_tensor(const Tensor& x, const Tensor& out);
/// Float32 values of the codes of `x`.
void dequantize_tensor(const Tensor& x, const Tensor& out);

}  // namespace quanta::cpu
