#pragma once

#include <CLI/CLI.hpp>

namespace quanta::cli {

/// The commands that the program quanta-distributed runs, which stands beside this one where Quanta
/// was built with MPI.
void add_distributed_commands(CLI::App& app);
/// Whether one of them was asked for.
bool is_distributed_command(const CLI::App& app);
/// Becomes quanta-distributed with the same arguments. Throws UnsupportedError where there is none.
[[noreturn]] void run_distributed(char** argv);

}  // namespace quanta::cli
