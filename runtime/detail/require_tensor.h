#pragma once

// Private: the first question of a member that looks at its tensor outside the operation frame.

#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Throws ArgumentError `<op>: <argument>: ...` for an undefined tensor.
inline void require_tensor(std::string_view op, const Tensor& x, std::string_view argument = "x") {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
}

}  // namespace quanta::detail
