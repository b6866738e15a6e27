#pragma once

#include <CLI/CLI.hpp>

#include "distributed/calibrate.h"
#include "distributed/evaluate.h"
#include "distributed/train.h"

namespace quanta::cli {

/// The commands that the program quanta-distributed runs, which stands beside this one where Quanta
/// was built with MPI.
void add_distributed_commands(CLI::App& app);
/// What their options go to.
struct DistributedCommands {
  CalibrateCommand calibrate;
  EvaluateCommand evaluate;
  TrainCommand train;
};
/// The same commands with the options that the other program knows, for completion; they cannot be run.
void describe_distributed_commands(CLI::App& app, DistributedCommands& options);
/// Whether one of them was asked for.
bool is_distributed_command(const CLI::App& app);
/// Becomes quanta-distributed with the same arguments. Throws UnsupportedError where there is none.
[[noreturn]] void run_distributed(char** argv);

}  // namespace quanta::cli
