#pragma once

// Private: softmax and log_softmax of tensors on a CUDA device (ops/cuda/softmax.h).

#include <cstdint>
#include <string_view>

#include "quanta/ops/cuda/softmax.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

/// Along `axis`, or of the one element of a tensor without dimensions. Both are dense, of one memory
/// order and dtype: Float32, Float16, BFloat16, QUInt8, QInt8 or QInt32. Gives the kernel's name.
std::string_view softmax(SoftmaxKind kind, const Tensor& x, const Tensor& out, std::int64_t axis);

}  // namespace quanta::cuda
