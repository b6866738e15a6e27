#pragma once

// Private: what an operation's infer() says, as tensors without memory.

#include <array>
#include <cstddef>

#include "quanta/ops/quantizer_meta.h"
#include "quanta/runtime/operation.h"

namespace quanta::detail {

/// Result `i` of the operation for these arguments. Throws what its infer() throws.
template <typename Kind, typename... Tensors>
Tensor infer_meta(const Kind& operation, std::size_t i, const Tensors&... tensors) {
  static_assert(Kind::kArguments.takes(sizeof...(tensors)));
  const std::array<const Tensor*, sizeof...(tensors)> list{&tensors...};
  Results results;
  operation.infer(Arguments(list.data(), list.size()), results);
  return meta::empty(results[i].sizes(), results[i].dtype());
}

}  // namespace quanta::detail
