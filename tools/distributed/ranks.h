#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"

namespace quanta::cli {

/// What all commands that run on several ranks take.
struct RanksOptions {
  int ranks = 0;    ///< 0: one for each process
  int threads = 0;  ///< of each rank; 0: its share of the cores
  double time_limit = 600.0;
};

void add_ranks_options(CLI::App& command, RanksOptions& options);
/// Calls `body` for each rank (distributed::run) and gives the exit status. Warnings say which rank they
/// are from (RankWarnings).
int run_on_ranks(const RanksOptions& options,
                 const std::function<int(const distributed::Communicator&)>& body);

/// An option and the file that it names; empty: none.
struct OutputFile {
  std::string option;
  std::string path;
};
/// Before work begins: rank 0, which writes them, throws FileError with the option and what to do
/// about a file that cannot be written.
void require_outputs(const distributed::Communicator& comm, const std::vector<OutputFile>& files);

/// "4 ranks in 2 processes, 1 thread each".
std::string describe_ranks(const distributed::Communicator& comm);

}  // namespace quanta::cli
