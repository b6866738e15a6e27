// Disks that are full or broken, at every call. quanta_files saves and loads each kind of file while
// the n-th open, read, write, sync, rename or close fails, for every n: a file is the old one or the
// new one, to the last byte, nothing else is left in its folder, and a load that returns gives what
// was saved.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "faults.h"
#include "file_kinds.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"

namespace {

namespace faults = quanta::faults;
namespace fs = std::filesystem;
using quanta::reliability::bytes_of;
using quanta::reliability::FileKind;

struct Counts {
  std::int64_t faults = 0, errors = 0;
};

std::string describe(const FileKind& kind, const faults::Plan& plan) {
  return kind.name + ": " + std::string(name_of(plan.outcome)) + " at " +
         std::string(name_of(plan.call)) + " " + std::to_string(plan.at);
}

void require(bool condition, const FileKind& kind, const faults::Plan& plan, const char* what) {
  if (!condition) throw std::logic_error(describe(kind, plan) + ": " + what);
}

// Runs `work` under `plan`. False when it has no such call.
template <typename Work>
bool attempt(const faults::Plan& plan, Counts& counts, bool& threw, Work&& work) {
  threw = false;
  faults::arm(plan);
  try {
    work();
  } catch (const quanta::Error&) {
    threw = true;
  }
  if (faults::disarm() == faults::End::NotReached) return false;
  ++counts.faults;
  counts.errors += threw ? 1 : 0;
  return true;
}

// Whether a call goes on as if nothing had happened.
bool is_retried(const faults::Plan& plan) {
  const bool moves = plan.call == faults::Call::Read || plan.call == faults::Call::Write;
  return moves &&
         (plan.outcome == faults::Outcome::Short || plan.outcome == faults::Outcome::Interrupted);
}

void try_saves(const FileKind& kind, const fs::path& folder, const std::string (&versions)[2],
               faults::Plan plan, Counts& counts) {
  const fs::path path = folder / "file";
  bool threw = false;
  for (plan.at = 0;; ++plan.at) {
    kind.save(0, path);
    const bool reached = attempt(plan, counts, threw, [&] { kind.save(1, path); });
    const std::string now = bytes_of(path);
    require(now == versions[0] || now == versions[1], kind, plan,
            "neither the old nor the new file");
    require(threw || now == versions[1], kind, plan, "no error, and still the old file");
    require(!threw || !is_retried(plan), kind, plan, "an error, expected another try");
    const auto files = std::distance(fs::directory_iterator(folder), fs::directory_iterator());
    require(files == 1, kind, plan, "something is left in the folder");
    if (!reached) return;
  }
}

void try_loads(const FileKind& kind, const fs::path& folder, faults::Plan plan, Counts& counts) {
  const fs::path path = folder / "file";
  kind.save(1, path);
  const std::string expected = kind.load(path);
  bool threw = false;
  for (plan.at = 0;; ++plan.at) {
    std::string got;
    const bool reached = attempt(plan, counts, threw, [&] { got = kind.load(path); });
    require(threw || got == expected, kind, plan, "something else was loaded");
    require(!threw || !is_retried(plan), kind, plan, "an error, expected another try");
    if (!reached) return;
  }
}

void try_kind(const FileKind& kind, const fs::path& folder) {
  std::string versions[2];
  for (const int version : {0, 1}) {
    kind.save(version, folder / "file");
    versions[version] = bytes_of(folder / "file");
  }
  if (versions[0] == versions[1]) throw std::logic_error(kind.name + ": two versions are the same");
  Counts saves, loads;
  for (const faults::Call call : faults::kFileCalls) {
    for (const faults::Outcome outcome : {faults::Outcome::NoSpace, faults::Outcome::InputOutput,
                                          faults::Outcome::Short, faults::Outcome::Interrupted}) {
      try_saves(kind, folder, versions, {call, 0, outcome}, saves);
      try_loads(kind, folder, {call, 0, outcome}, loads);
    }
  }
  std::printf("%-20s %9jd %9jd %9jd %9jd\n", kind.name.c_str(), std::intmax_t{saves.faults},
              std::intmax_t{saves.errors}, std::intmax_t{loads.faults},
              std::intmax_t{loads.errors});
  std::fflush(stdout);
}

}  // namespace

int main() {
  quanta::set_num_threads(1);
  const fs::path folder =
      fs::temp_directory_path() / ("quanta_files_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  int status = 0;
  try {
    std::printf("%-20s %9s %9s %9s %9s\n", "file", "saves", "errors", "loads", "errors");
    for (const FileKind& kind : quanta::reliability::file_kinds()) try_kind(kind, folder);
  } catch (const std::exception& error) {
    faults::disarm();
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  fs::remove_all(folder);
  return status;
}
