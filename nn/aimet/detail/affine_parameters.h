#pragma once

// Private: scale and offset as differentiable functions of a quantizer's parameters, which are
// Float32 and small.

#include <cstdint>

#include "quanta/observers/aimet/grid.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet::detail {

/// max(|(max - min) / num_steps|, minimum_scale).
Tensor scale_of_range(const Tensor& min, const Tensor& max, std::int64_t num_steps);
/// max(|scale|, minimum_scale).
Tensor bounded_scale(const Tensor& scale, std::int64_t num_steps);
/// clamp(round_half_even(min / scale) - qmin, -qmax, -qmin): rounding passes gradients straight
/// through, the clamp those of what lies strictly inside.
Tensor offset_of_range(const Tensor& min, const Tensor& scale, const Grid& grid);
/// round_half_even, whose gradient passes straight through.
Tensor round_straight_through(const Tensor& x);
/// A copy of `y`, calculated from `x` off the tape, with a gradient as if it were x.
Tensor straight_through(const Tensor& x, const Tensor& y);

/// The same two without clamps, off the tape: what a batch is quantized with during calibration.
Tensor plain_scale(const Tensor& min, const Tensor& max, std::int64_t num_steps);
Tensor plain_offset(const Tensor& min, const Tensor& scale, const Grid& grid);

/// function(a, b) for each element of two Float32 tensors of the same sizes, off the tape.
template <typename Function>
Tensor map_two(const Tensor& a, const Tensor& b, Function&& function) {
  const Tensor left = a.detach().contiguous();
  const Tensor right = b.detach().contiguous();
  const auto* from = left.data<float>();
  const auto* with = right.data<float>();
  Tensor result = Tensor::empty(a.sizes());
  auto* to = static_cast<float*>(result.data_ptr());
  for (std::int64_t i = 0; i < result.numel(); ++i) to[i] = function(from[i], with[i]);
  return result;
}

}  // namespace quanta::aimet::detail
