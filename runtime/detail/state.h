#pragma once

// Private: operations that move an argument on for good, such as running statistics.

#include <string_view>

namespace quanta::detail {

/// For the infer() of such an operation: throws UnsupportedError while steps are recorded, as every
/// run of a plan starts from the same constants.
void require_no_recording(std::string_view op, std::string_view argument);

}  // namespace quanta::detail
