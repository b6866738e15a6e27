#pragma once

// Changes to .safetensors files that know where the header ends.

#include <string>
#include <string_view>

#include "json_change.h"

namespace quanta::fuzz {

/// A changed file: its header, a value within it or its data. Most of the time offsets and the
/// header's length are made to fit again, so that the change gets past the checks of the format.
std::string changed_safetensors(std::string_view file, std::size_t max_size, Random& random);

}  // namespace quanta::fuzz
