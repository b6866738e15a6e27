#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace quanta::cli {

/// Exit status of a command line that makes no sense.
inline constexpr int kUsageError = 2;

/// The candidate with the fewest letters to change, drop, add or swap, if these are few enough for
/// a slip of the fingers: a third of the letters, two at least.
std::optional<std::string> nearest(const std::string& name,
                                   const std::vector<std::string>& candidates);

/// Parses the command line. The exit status when there is nothing left to do: after help or a
/// version, which are printed, or a mistake, which is told on stderr in three lines: what is wrong,
/// what was expected, and where to read more.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

/// The names of all commands, in order.
std::vector<std::string> command_names(const CLI::App& app);

}  // namespace quanta::cli
