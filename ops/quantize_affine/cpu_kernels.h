#pragma once

// Private: the loops of affine quantizers whose scales are broadcast or belong to blocks.

#include <cstdint>

#include "quanta/ops/cpu/affine_rows.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/affine_math.h"
#include "quanta/runtime/dims.h"

namespace quanta::cpu {

enum class AffineOp : std::uint8_t { Quantize, Dequantize, QuantizeDequantize };

/// Sums of gradients, spread over as many lanes as the widest vector has: element i adds to lane
/// i % kCount, so that every instruction set sums in the same order.
struct GradientLanes {
  static constexpr std::int64_t kCount = 16;
  double scale[kCount] = {};
  double offset[kCount] = {};
};

/// How the results of single operations are rounded.
enum class AffineStep : std::uint8_t { Native, Float16, BFloat16 };

/// dst = the op for every element of `src`, with parameters scale[...] and offset[...]. T is float
/// or double. Float with native steps and rounding to even runs in vectors and gives the numbers of
/// the scalar functions bit for bit.
template <typename T>
void affine_forward(AffineOp op, const T* src, const AffineLayout& layout, const T* scale,
                    const T* offset, const math::AffineLimits<T>& limits, AffineStep step, T* dst);

/// Gradients for an upstream `grad`: of each element to `x_grad`, sums for each parameter to
/// `scale_grad` and `offset_grad`, in an order that does not depend on the number of threads.
template <typename T>
void affine_backward(AffineOp op, const T* src, const T* grad, const AffineLayout& layout,
                     const T* scale, const T* offset, const math::AffineLimits<T>& limits,
                     T* x_grad, double* scale_grad, double* offset_grad);

}  // namespace quanta::cpu
