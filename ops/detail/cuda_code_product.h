#pragma once

// Private: products of two tensors of bytes on a CUDA device, neither of which is packed before the
// call.

#include <cstdint>

#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cuda/int8_product.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Bytes, UInt8, Int8, QUInt8 or QInt8, on the device, and their zero point as they have it: a
/// number, or a tensor there.
struct ByteOperand {
  Tensor bytes;
  std::int64_t zero_point = 0;
  Tensor
      zero_points{};  ///< of the bytes' dtype, one or one a row (left), column or channel (right)
};

/// What becomes of the exact sums.
struct ByteProductEnd {
  cuda::ActivationProduct::End end = cuda::ActivationProduct::End::Sums;
  float scale = 1.0F;
  float inv_scale = 1.0F;
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  std::int32_t high = 255;
};

/// out = lhs [..., M, K] times rhs [..., K, N], dense, whose leading sizes are those of `out` or 1;
/// all of one rank >= 2, and `out` not empty. Sums wrap.
void multiply_bytes_on_cuda(const ByteOperand& lhs, const ByteOperand& rhs,
                            const ByteProductEnd& end, const Tensor& out);

/// out = the convolution of x [N, C, ...], channels-last, with the contiguous weight
/// [O, C/groups, ...], int32 and channels-last. `shape` has the sizes of x as it is; x reads as its
/// zero point beyond them.
void convolve_bytes_on_cuda(const ByteOperand& x, const ByteOperand& weight,
                            const cpu::ConvShape& shape, const Tensor& out);

}  // namespace quanta::detail
