#pragma once

#include <functional>
#include <string_view>

namespace quanta::examples {

/// Whether --help or -h is among the arguments; then `usage` is printed, and the program should end
/// without doing anything else.
bool asked_for_help(int argc, char** argv, std::string_view usage);

/// An example's main(): its usage when it is asked for help, or else `run`, whose value is the exit
/// status. What `run` throws is told behind the program's name, the first word of `usage`; the status
/// is 1 then.
int run_main(int argc, char** argv, std::string_view usage, const std::function<int()>& run);

}  // namespace quanta::examples
