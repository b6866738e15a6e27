// Saves that are killed. quanta_kills [COUNT [SEED]] starts a process that saves one file again and
// again, kills it (SIGKILL) at a random moment, and looks at what is there: the file is one of the
// two versions to the last byte; the next save succeeds and leaves nothing beside it. COUNT times
// (default: 1000), over all kinds of files in turn.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "file_kinds.h"
#include "quanta/runtime/parallel.h"

namespace {

namespace fs = std::filesystem;
using quanta::reliability::bytes_of;
using quanta::reliability::FileKind;

pid_t start_saving(const FileKind& kind, const fs::path& path) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  try {
    for (int version = 0;; version = 1 - version) kind.save(version, path);
  } catch (...) {
    ::_exit(1);
  }
}

// How long a save takes, for moments that are spread over a few.
std::chrono::microseconds duration_of(const FileKind& kind, const fs::path& path) {
  const auto begin = std::chrono::steady_clock::now();
  kind.save(0, path);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                               begin);
}

struct Target {
  FileKind kind;
  fs::path folder, file;
  std::string versions[2];
  std::chrono::microseconds duration{};
};

// True if the kill left a file that the next save had to remove.
bool kill_once(const Target& target, std::mt19937_64& random) {
  const pid_t child = start_saving(target.kind, target.file);
  const auto most = static_cast<std::uint64_t>(3 * target.duration.count() + 500);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSIGNALED(status)) throw std::logic_error(target.kind.name + ": a save failed");
  const std::string now = bytes_of(target.file);
  if (now != target.versions[0] && now != target.versions[1]) {
    throw std::logic_error(target.kind.name + ": neither the old nor the new file");
  }
  const auto count = [&] {
    return std::distance(fs::directory_iterator(target.folder), fs::directory_iterator());
  };
  const bool left = count() > 1;
  target.kind.save(0, target.file);
  if (bytes_of(target.file) != target.versions[0]) {
    throw std::logic_error(target.kind.name + ": a save after a kill is not whole");
  }
  if (count() != 1) throw std::logic_error(target.kind.name + ": a killed save left a file");
  return left;
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc > 1 ? std::atol(argv[1]) : 1000;
  if (count < 1 || argc > 3) {
    std::fprintf(stderr, "usage: %s [COUNT [SEED]]\n", argv[0]);
    return 2;
  }
  quanta::set_num_threads(1);  // a child has no threads of its parent
  std::mt19937_64 random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  const fs::path folder =
      fs::temp_directory_path() / ("quanta_kills_" + std::to_string(::getpid()));
  int status = 0;
  try {
    std::vector<Target> targets;
    for (FileKind& kind : quanta::reliability::file_kinds()) {
      Target target{std::move(kind), folder / std::to_string(targets.size()), {}, {}, {}};
      target.file = target.folder / "file";
      fs::create_directories(target.folder);
      for (const int version : {1, 0}) {
        target.kind.save(version, target.file);
        target.versions[version] = bytes_of(target.file);
      }
      target.duration = duration_of(target.kind, target.file);
      targets.push_back(std::move(target));
    }
    long left = 0;
    for (long i = 0; i < count; ++i) {
      left += kill_once(targets[static_cast<std::size_t>(i) % targets.size()], random) ? 1 : 0;
    }
    std::printf(
        "%ld saves killed: each file whole, old or new; %ld left a temporary file, which the "
        "next save removed\n",
        count, left);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  fs::remove_all(folder);
  return status;
}
