#pragma once

// Private: the frame of gradients of ops that map each element on its own.

#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

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
  detail::visit_floats(value.dtype(), [&](auto zero) {
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

/// Records y = op(x), whose gradient is function(gradient, value) for each element of `value`, x or
/// y.
template <typename Function>
Tensor record_pointwise(std::string_view op, const Tensor& x, Tensor y, const Tensor& value,
                        Function function) {
  return autograd::record(
      op, {x}, std::move(y), {value}, [function](const autograd::BackwardContext& backward) {
        return std::vector<Tensor>{map_pair(backward.grad(), backward.saved(0), function)};
      });
}

}  // namespace quanta::gradients
