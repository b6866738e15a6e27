#pragma once

// Private: the three operations of affine quantizers on one element, for the CPU's loops and CUDA's
// kernels.

#include <cstdint>

#include "quanta/runtime/affine_math.h"
#include "quanta/runtime/host_device.h"

namespace quanta {

enum class AffineOp : std::uint8_t { Quantize, Dequantize, QuantizeDequantize };

/// How the results of single operations are rounded.
enum class AffineStep : std::uint8_t { Native, Float16, BFloat16 };

namespace math {

template <typename T, typename Step>
QUANTA_HOST_DEVICE inline T affine_value(AffineOp op, T x, T scale, T offset,
                                         const AffineLimits<T>& limits, Step step) {
  switch (op) {
    case AffineOp::Quantize:
      return affine_quantize(x, scale, offset, limits, step);
    case AffineOp::Dequantize:
      return affine_dequantize(x, scale, offset, step);
    case AffineOp::QuantizeDequantize:
      break;
  }
  return affine_quantize_dequantize(x, scale, offset, limits, step);
}

template <typename T>
QUANTA_HOST_DEVICE inline AffineGradient<T> affine_gradient(AffineOp op, T x, T scale, T offset,
                                                            const AffineLimits<T>& limits, T grad) {
  switch (op) {
    case AffineOp::Quantize:
      return affine_quantize_gradient(x, scale, offset, limits, grad);
    case AffineOp::Dequantize:
      return affine_dequantize_gradient(x, scale, offset, grad);
    case AffineOp::QuantizeDequantize:
      break;
  }
  return affine_quantize_dequantize_gradient(x, scale, offset, limits, grad);
}

}  // namespace math
}  // namespace quanta
