#pragma once

// Private: the first question of whoever reads a state.

#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::detail {

/// Throws ArgumentError `<op>: state: '<name>': ...` when one of the tensors is undefined, so that
/// readers may ask each for its sizes.
inline void require_defined(const StateDict& state, std::string_view op) {
  for (const auto& [name, tensor] : state) {
    QUANTA_CHECK(tensor.defined(), "{}: state: '{}': expected a tensor, got an undefined one", op,
                 name);
  }
}

}  // namespace quanta::detail
