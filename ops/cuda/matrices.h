#pragma once

// Private: matrix products of tensors of floats on a CUDA device.

#include <string_view>

#include "quanta/ops/cuda/library.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

struct ProductEndings {
  Tensor bias;  ///< contiguous [columns]; undefined: none
  bool relu = false;
};

/// out = lhs x rhs for matrices [..., rows, depth] and [..., depth, columns] of one rank >= 2 and
/// one dtype: Float32, Float16 or BFloat16. Batch dimensions of size 1 are broadcast; `out` is
/// contiguous and not empty. What the libraries cannot read in place is copied. Gives the name of
/// what calculates it.
std::string_view multiply(const Tensor& lhs, const Tensor& rhs, const ProductEndings& endings,
                          const Tensor& out);

}  // namespace quanta::cuda
