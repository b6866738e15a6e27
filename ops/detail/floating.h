#pragma once

// Private: the dtypes that gradients are calculated in.

#include <cstdint>
#include <string_view>

#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

inline bool is_float32_or_64(DType dtype) noexcept {
  return dtype == DType::Float32 || dtype == DType::Float64;
}

/// Calls visitor(T{}) with float or double, one of which the dtype is.
template <typename Visitor>
decltype(auto) visit_floats(DType dtype, Visitor&& visitor) {
  if (dtype == DType::Float64) return visitor(double{});
  return visitor(float{});
}

/// `x` off the tape, for an op that makes its own note of what it does with it.
inline Tensor off_tape(const Tensor& x) { return x.requires_grad() ? x.detach() : x; }

/// Throws unless `x` is defined and Float32 or Float64, or on a CUDA device Float16 or BFloat16, which
/// an operation's cuda_dtypes() decides about.
inline void check_floats(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  QUANTA_SUPPORTED(is_float32_or_64(x.dtype()) || is_float_of_cuda(x),
                   "{}: {}: expected Float32 or Float64 on the CPU, got {}", op, argument,
                   x.dtype());
}

}  // namespace quanta::detail
