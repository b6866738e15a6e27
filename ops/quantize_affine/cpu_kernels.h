#pragma once

// Private: the loops of affine quantizers whose scales are broadcast or belong to blocks.

#include <cstdint>

#include "quanta/ops/cpu/affine_rows.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/quantize_affine/affine_op.h"
#include "quanta/runtime/affine_math.h"
#include "quanta/runtime/dims.h"

namespace quanta::cpu {

/// Sums of gradients, spread over as many lanes as the widest vector has: element i adds to lane
/// i % kCount, so that every instruction set sums in the same order.
struct GradientLanes {
  static constexpr std::int64_t kCount = 16;
  double scale[kCount] = {};
  double offset[kCount] = {};
};

/// Sums of gradients are taken in so many parts of the rows, each with sums of its own for all
/// parameters: fixed, so that they come out the same with any number of threads.
std::int64_t gradient_parts(const AffineRows& rows, std::int64_t parameters);

/// Whether a row's sums go over GradientLanes, which are then added to its part's one by one; else
/// elements are added in order.
inline bool sums_in_lanes(AffineOp op, bool is_float, const AffineRows& rows,
                          AffineRounding rounding) {
  return is_float && op == AffineOp::QuantizeDequantize && rows.step() == 0 &&
         rounding == AffineRounding::HalfEven;
}

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
