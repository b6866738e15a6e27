#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace quanta::cli {

/// A script that completes the command's arguments in that shell, "bash" or "zsh": commands,
/// options, and their values where these are a set of words or files.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace quanta::cli
