// quanta-distributed: the commands of `quanta` that run on several ranks. A program of its own, so
// that `quanta` does not need MPI.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/usage.h"
#include "distributed/evaluate.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"quanta: networks on several processes", "quanta"};
  app.require_subcommand(1);
  app.footer("mpirun -np 4 quanta COMMAND ... runs in four processes.");
  quanta::cli::EvaluateCommand evaluate;
  quanta::cli::add_evaluate_command(app, evaluate);

  if (const auto status = quanta::cli::parse_command_line(app, argc, argv)) return *status;
  return quanta::cli::run_evaluate(evaluate);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quanta: %s\n", error.what());
    return 1;
  }
}
