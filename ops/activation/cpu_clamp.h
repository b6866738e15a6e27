#pragma once

#include <memory>

#include "quanta/ops/cpu/lookup.h"
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

/// Both dense and of one memory order; `out` may be `x`.
void clamp(const Tensor& x, const Tensor& out, const ClampBounds& bounds);
/// In place; no element of `x` may be reachable by two indices.
void clamp_in_place(const Tensor& x, const ClampBounds& bounds);
/// What becomes of each code of QUInt8 or QInt8; null for other dtypes.
std::shared_ptr<const CodeTable> clamp_table(DType dtype, const ClampBounds& bounds);

}  // namespace quanta::cpu
