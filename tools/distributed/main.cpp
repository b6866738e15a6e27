// quanta-distributed: the commands of `quanta` that run on several ranks. A program of its own, so
// that `quanta` does not need MPI.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/usage.h"
#include "distributed/calibrate.h"
#include "distributed/evaluate.h"
#include "distributed/train.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"quanta: networks on several processes", "quanta"};
  app.require_subcommand(1);
  app.footer("mpirun -np 4 quanta COMMAND ... runs in four processes.");
  quanta::cli::EvaluateCommand evaluate;
  quanta::cli::add_evaluate_command(app, evaluate);
  quanta::cli::CalibrateCommand calibrate;
  quanta::cli::add_calibrate_command(app, calibrate);
  quanta::cli::TrainCommand train;
  quanta::cli::add_train_command(app, train);

  if (const auto status = quanta::cli::parse_command_line(app, argc, argv)) return *status;
  if (app.got_subcommand("calibrate")) return quanta::cli::run_calibrate(calibrate);
  if (app.got_subcommand("train")) return quanta::cli::run_train(train);
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
