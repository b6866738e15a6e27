#pragma once

// Private: ops that write into a tensor of the caller's.

#include <initializer_list>
#include <string_view>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/overlap.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

struct OutArgument {
  std::string_view name;
  const Tensor& out;
  const Tensor& result;
};

/// Copies each result into its `out`, after all of them were checked: the result's dtype, and its
/// sizes or no elements (then `out` is resized).
inline void write_out(std::string_view op, std::initializer_list<OutArgument> arguments) {
  for (const OutArgument& argument : arguments) {
    const auto& [name, out, result] = argument;
    check_uniform(op, name, out);
    QUANTA_CHECK(out.dtype() == result.dtype(), "{}: {}: expected {}, got {}", op, name,
                 result.dtype(), out.dtype());
    QUANTA_CHECK(out.sizes() == result.sizes() || out.numel() == 0,
                 "{}: {}: expected {} or an empty tensor, got {}", op, name, result.sizes(),
                 out.sizes());
    check_writable(op, name, out);
  }
  for (const OutArgument& argument : arguments) {
    const auto& [name, out, result] = argument;
    if (out.sizes() != result.sizes()) resize_(out, result.sizes());
    out.copy_(result);
  }
}

}  // namespace quanta::detail
