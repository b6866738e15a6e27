#pragma once

// Private: what to do about a state that does not fit.

#include <string>
#include <vector>

#include "quanta/runtime/state_dict.h"

namespace quanta::nn::detail {

/// Lines ("\n  all names stand under 'module.': ...") that end the message of load_state_dict when
/// the reason can be told from the names and dtypes: a prefix before all names, or a state of
/// another form (quantized, prepared, fused) than the model's. Empty for all else. `own` is the
/// model's state.
std::string state_advice(const StateDict& state, const StateDict& own,
                         const std::vector<std::string>& missing,
                         const std::vector<std::string>& unexpected);

}  // namespace quanta::nn::detail
