#pragma once

#include "quanta/runtime/tensor.h"

// Private: min(max(x, low), high) on whole tensors, the work behind relu, relu6, clamp, hardtanh.

namespace quanta::cpu {

/// The bounds, as numbers for Float32 (rounded to it) and Float64, as codes for quantized tensors.
struct ClampBounds {
  double low;
  double high;
  std::int32_t low_code;
  std::int32_t high_code;
};

/// A new tensor of the same shape, order and parameters.
Tensor clamp(const Tensor& x, const ClampBounds& bounds);
/// In place; no element of `x` may be reachable by two indices.
void clamp_in_place(const Tensor& x, const ClampBounds& bounds);

}  // namespace quanta::cpu
