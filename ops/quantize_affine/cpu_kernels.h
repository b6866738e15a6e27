#pragma once

// Private: the loops of affine quantizers whose scales are broadcast or belong to blocks.

#include <cstdint>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/affine_math.h"
#include "quanta/runtime/dims.h"

namespace quanta::cpu {

enum class AffineOp : std::uint8_t { Quantize, Dequantize, QuantizeDequantize };

/// Which parameter belongs to which element of a contiguous tensor: the element at `index` of
/// `sizes` has the parameter at the scalar product of `index` and `strides`. A blocked axis is two
/// axes here, of which the inner one has a stride of 0.
struct AffineLayout {
  Dims sizes;
  Dims strides;
  std::int64_t parameters = 1;
};

/// The layout as rows: memory is rows of `length` elements. A row has one parameter, or (`step` 1)
/// neighbouring parameters for neighbouring elements. Rows come in runs of `run`, within which the
/// first parameter moves by `run_stride`.
class AffineRows {
 public:
  explicit AffineRows(const AffineLayout& layout);

  std::int64_t count() const noexcept { return count_; }
  std::int64_t length() const noexcept { return length_; }
  std::int64_t step() const noexcept { return step_; }
  std::int64_t run_stride() const noexcept { return run_stride_; }

  /// body(first row, number of rows, parameter of the first) for rows begin..end, run by run.
  template <typename Body>
  void for_each_run(std::int64_t begin, std::int64_t end, Body&& body) const {
    while (begin < end) {
      const std::int64_t within = begin % run_;
      const std::int64_t rows = std::min(run_ - within, end - begin);
      body(begin, rows, run_start(begin / run_) + within * run_stride_);
      begin += rows;
    }
  }

 private:
  std::int64_t run_start(std::int64_t index) const;

  Dims outer_sizes_;
  Dims outer_strides_;
  std::int64_t count_ = 0;
  std::int64_t length_ = 0;
  std::int64_t step_ = 0;
  std::int64_t run_ = 1;
  std::int64_t run_stride_ = 0;
};

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
