#include "distributed.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "quanta/runtime/error.h"

namespace quanta::cli {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 3> kCommands{{
    {"calibrate", "Calibrate a network and convert it to int8, on one process or many (MPI)"},
    {"evaluate", "Top-1, top-5 and loss of a network on a data set, on one process or many (MPI)"},
    {"train", "Train a network with quantization in the loop, on one process or many (MPI)"},
}};

}  // namespace

void add_distributed_commands(CLI::App& app) {
  for (const auto& [name, text] : kCommands) {
    CLI::App* command = app.add_subcommand(name, text);
    // Help too is the other program's.
    command->set_help_flag();
    command->prefix_command();
  }
}

void describe_distributed_commands(CLI::App& app, DistributedCommands& options) {
  for (const auto& [name, text] : kCommands) app.remove_subcommand(app.get_subcommand(name));
  add_calibrate_command(app, options.calibrate);
  add_evaluate_command(app, options.evaluate);
  add_train_command(app, options.train);
}

bool is_distributed_command(const CLI::App& app) {
  for (const auto& [name, text] : kCommands) {
    if (app.got_subcommand(name)) return true;
  }
  return false;
}

void run_distributed(char** argv) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = here.parent_path() / "quanta-distributed";
  if (error || !std::filesystem::exists(program, error)) {
    throw UnsupportedError(
        fmt::format("{}: expected quanta-distributed beside this program, got none: Quanta was "
                    "built without MPI "
                    "(tools/setup --mpi installs it; then build again)",
                    argv[1]));
  }
  const std::string path = program.string();
  ::execv(path.c_str(), argv);
  throw UnsupportedError(fmt::format("{}: {}: {}", argv[1], path, std::strerror(errno)));
}

}  // namespace quanta::cli
