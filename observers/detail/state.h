#pragma once

// Private: how the tensors of a state are read. All of it throws ArgumentError
// `load_state_dict: <name>: ...` for what is missing or cannot be.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quanta/observers/detail/reduce.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Null when there is none of that name; an undefined tensor is refused.
const Tensor* find_state(const StateDict& state, const std::string& name);
const Tensor& require_state(const StateDict& state, const std::string& name);

/// Floating values of at most one dimension.
std::vector<float> float_state(const Tensor& tensor, const std::string& name);
/// One floating value: a 0-d or one-element tensor.
float scalar_state(const StateDict& state, const std::string& name);
/// Floating values of any shape, as an own contiguous copy in Float32.
Tensor tensor_state(const StateDict& state, const std::string& name);
/// What tensor_state gives, or an undefined tensor where there is none.
Tensor optional_state(const StateDict& state, const std::string& name);
/// A whole number >= 0, of an integer dtype.
std::int64_t count_state(const StateDict& state, const std::string& name);

/// A switch ([1] of any integer dtype or Bool).
bool switch_state(const StateDict& state, const std::string& name);

/// One value, or one for each channel, as an own copy in `dtype`: floating for a floating one,
/// integers for an integer one.
Tensor vector_state(const StateDict& state, const std::string& name, DType dtype);

/// A range as min_val and max_val, with the entries in the given shape.
void save_range(StateDict& state, const std::string& prefix, const ValueRange& range,
                const Dims& shape);
/// Reads them back: so many values of either.
ValueRange load_range(const StateDict& state, const std::string& prefix, std::size_t entries);

}  // namespace quanta::detail
