#pragma once

#include <nlohmann/json.hpp>

#include "quanta/runtime/device.h"

namespace quanta {

/// The sample call of each operation and dtype that has a kernel on the device, there and on the
/// CPU: rows of op, dtype, whether all elements are equal, and if not the largest difference, of
/// codes in steps; an error where codes or integers differ, where floats differ by more than the
/// order of sums explains, and where something was thrown.
nlohmann::json check_operations(Device device);

}  // namespace quanta
