#include "distributed/ranks.h"

#include <fmt/format.h>

#include <chrono>

#include "distributed/rank_warnings.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cli {

int run_on_ranks(const RanksOptions& options,
                 const std::function<int(const distributed::Communicator&)>& body) {
  RankWarnings warnings;
  return distributed::run(
      [&](const distributed::Communicator& comm) {
        warnings.join(comm);
        return body(comm);
      },
      {.ranks = options.ranks,
       .threads = options.threads,
       .time_limit =
           std::chrono::milliseconds(static_cast<std::int64_t>(options.time_limit * 1000.0))});
}

void require_outputs(const distributed::Communicator& comm, const std::vector<OutputFile>& files) {
  if (!comm.is_first()) return;
  for (const auto& [option, path] : files) {
    if (path.empty()) continue;
    try {
      require_writable(path);
    } catch (const FileError& error) {
      throw FileError(fmt::format(
          "{}: {}; name a file in a folder that exists and may be written to (nothing was done)",
          option, error.what()));
    }
  }
}

std::string describe_ranks(const distributed::Communicator& comm) {
  const auto several = [](int count, const char* name) {
    return fmt::format("{} {}{}", count, name, count == 1 ? "" : "s");
  };
  return fmt::format(
      "{} in {}, {} each", several(comm.size(), "rank"),
      comm.processes() == 1 ? "1 process" : fmt::format("{} processes", comm.processes()),
      several(get_num_threads(), "thread"));
}

}  // namespace quanta::cli
