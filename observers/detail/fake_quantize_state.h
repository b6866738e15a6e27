#pragma once

// Private: how the parts of a fake quantizer's state are read.

#include <string>

#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// A switch ([1] of any integer dtype or Bool). Throws ArgumentError `load_state_dict: <name>:
/// ...`.
bool switch_state(const StateDict& state, const std::string& name);

/// One value, or one for each channel, as an own copy in `dtype`: floating for a floating one,
/// integers for an integer one. Throws ArgumentError.
Tensor vector_state(const StateDict& state, const std::string& name, DType dtype);

}  // namespace quanta::detail
