#pragma once

// Private: the frame of gradients of ops that map each element on its own.

#include "quanta/ops/cpu/gradient_kernels.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/float_slopes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// rows(gradient, value, dst, count) over parts of both, which have the same sizes, in the value's
/// memory order.
template <typename T, typename Rows>
void for_each_pair(const Tensor& gradient, const Tensor& value, const Tensor& out, Rows&& rows) {
  const MemoryFormat format = value.suggested_format();
  const Tensor from = gradient.contiguous(format);
  const Tensor at = value.contiguous(format);
  const auto* gradients = static_cast<const T*>(from.data_ptr());
  const auto* values = static_cast<const T*>(at.data_ptr());
  auto* dst = static_cast<T*>(out.data_ptr());
  cpu::parallel_elements(out.numel(), [&](std::int64_t begin, std::int64_t end) {
    rows(gradients + begin, values + begin, dst + begin, end - begin);
  });
}

/// function(gradient, value) for each element.
template <typename Function>
Tensor map_pair(const Tensor& gradient, const Tensor& value, const Function& function) {
  Tensor out = Tensor::empty(value.sizes(), value.dtype(), value.suggested_format());
  visit_floats(value.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_pair<T>(gradient, value, out,
                     [&](const T* gradients, const T* values, T* dst, std::int64_t count) {
                       for (std::int64_t i = 0; i < count; ++i) {
                         dst[i] = function(gradients[i], values[i]);
                       }
                     });
  });
  return out;
}

/// Float32 through `rows`, a vector kernel; Float64 through `function`.
template <typename Rows, typename Function>
Tensor map_pair_with(const Tensor& gradient, const Tensor& value, const Rows& rows,
                     const Function& function) {
  if (value.dtype() != DType::Float32) return map_pair(gradient, value, function);
  Tensor out = Tensor::empty(value.sizes(), DType::Float32, value.suggested_format());
  for_each_pair<float>(gradient, value, out, rows);
  return out;
}

// On CUDA devices, Float32 (Float16 and BFloat16 through it, rounded once) and in the value's memory order as above.

/// The slope of a function: its gradient from that of the result, at its arguments or results.
Tensor slope_on_cuda(const cuda::FloatCall& call, const Tensor& gradient, const Tensor& value);
/// The gradient where the value lies between two bounds, else 0.
Tensor gate_on_cuda(const Tensor& gradient, const Tensor& value, const cuda::GateBounds& bounds);

/// low < value < high ? gradient : 0, for each element.
inline Tensor through_gate(const Tensor& gradient, const Tensor& value, double low, double high) {
  const cpu::Gate gate{static_cast<float>(low), static_cast<float>(high), 1.0F};
  if (value.device().is_cuda()) {
    return gate_on_cuda(gradient, value, {.low = gate.low, .high = gate.high});
  }
  return map_pair_with(
      gradient, value,
      [&](const float* from, const float* at, float* dst, std::int64_t count) {
        cpu::gate_gradient(from, at, dst, count, gate);
      },
      [&](auto from, auto at) {
        using T = decltype(at);
        return at <= static_cast<T>(low) || at >= static_cast<T>(high) ? T{0} : from;
      });
}

}  // namespace quanta::detail
