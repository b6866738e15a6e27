#pragma once

#include "quanta/runtime/tensor.h"

// Private: the float32 matrix product.

namespace quanta::cpu {

/// out = lhs x rhs through oneDNN. All Float32 with the same rank >= 2; `out` is contiguous, batch
/// dimensions of size 1 are broadcast, no size is 0. Throws BackendError.
void matmul(const Tensor& lhs, const Tensor& rhs, const Tensor& out);

}  // namespace quanta::cpu
