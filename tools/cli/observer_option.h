#pragma once

#include <string>
#include <vector>

#include "quanta/observers/qconfig.h"

namespace quanta::cli {

/// What --observer takes.
std::vector<std::string> observer_names();
/// The QConfig that watches activations with this observer, weights per channel or per tensor.
/// Throws ArgumentError for another name.
QConfig qconfig_of_observer(const std::string& observer, bool per_tensor);

}  // namespace quanta::cli
