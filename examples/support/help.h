#pragma once

#include <string_view>

namespace quanta::examples {

/// Whether --help or -h is among the arguments; then `usage` is printed, and the program should end
/// without doing anything else.
bool asked_for_help(int argc, char** argv, std::string_view usage);

}  // namespace quanta::examples
