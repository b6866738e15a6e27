#pragma once

// Private: functions from a float to a code that never falls, as the floats where the code rises:
// what a device that has another tanh looks up.

#include <array>
#include <cstdint>
#include <functional>

namespace quanta::detail {

/// steps[i] is the smallest float whose code is at least i + 1; NaN where there is none. Codes are
/// 0..255; `code` is never asked for that of NaN.
using CodeSteps = std::array<float, 255>;
CodeSteps code_steps(const std::function<std::int32_t(float)>& code);

}  // namespace quanta::detail
