// Random calls of every operation of the catalogue.
//
//   quanta_api_fuzz [--calls N] [--seed S] [--op NAME] [--from FIRST] [--only NUMBER]
//
// Each call gives a right result or throws what derives from quanta::Error (check_call.h). Calls run
// in a process of their own, so that one that crashes, hangs or is stopped by a sanitizer is
// reported and the rest goes on. What is found is printed with the command that shows it again,
// which runs in this process. Ends with status 1 when there was anything.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "check_call.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/error.h"

namespace {

using quanta::api_fuzz::Call;
using quanta::api_fuzz::check_call;
using quanta::api_fuzz::Outcome;
using quanta::api_fuzz::random_call;

struct Options {
  std::uint64_t calls = 1000;
  std::uint64_t seed = 1;
  std::uint64_t from = 0;
  std::string op;
  bool only = false;
};

// What the process that makes the calls tells the one that waits for it.
struct Progress {
  std::uint64_t call;
  std::array<char, 64> op;
  std::uint64_t calculated, refused, skipped, by_reference, findings;
};

// Of processor time; where other processes want the processors, ten times as long on the clock.
constexpr int kSecondsPerCall = 60;
// A sanitizer keeps notes of all addresses, and knows limits of its own.
#if !QUANTA_ADDRESS_SANITIZER && !QUANTA_THREAD_SANITIZER
constexpr rlim_t kMostMemory = rlim_t{6} << 30U;
#endif

void print_finding(const Options& options, std::uint64_t call, std::string_view op,
                   std::string_view text) {
  std::printf("FINDING %.*s: %.*s\n  quanta_api_fuzz --seed %llu%s%s --only %llu\n",
              static_cast<int>(op.size()), op.data(), static_cast<int>(text.size()), text.data(),
              static_cast<unsigned long long>(options.seed), options.op.empty() ? "" : " --op ",
              options.op.c_str(), static_cast<unsigned long long>(call));
  std::fflush(stdout);
}

void make_call(const Options& options, std::uint64_t number, Progress& progress) {
  progress.call = number;
  const Call call = random_call(options.seed, number, options.op);
  const std::size_t length = std::min(call.entry->name.size(), progress.op.size() - 1);
  std::memcpy(progress.op.data(), call.entry->name.data(), length);
  progress.op[length] = '\0';
  if (options.only) std::printf("%s\n", to_string(call).c_str());
  std::fflush(stdout);
  const Outcome outcome = check_call(call);
  progress.calculated += outcome.kind == Outcome::Kind::Calculated ? 1 : 0;
  progress.refused += outcome.kind == Outcome::Kind::Refused ? 1 : 0;
  progress.skipped += outcome.kind == Outcome::Kind::Skipped ? 1 : 0;
  progress.by_reference += outcome.by_reference ? 1 : 0;
  if (!outcome.finding) return;
  ++progress.findings;
  print_finding(options, number, call.entry->name, *outcome.finding);
}

void set_time_limit() {
  const itimerval limit{{0, 0}, {kSecondsPerCall, 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  ::alarm(10 * kSecondsPerCall);
}

// From `first` on, in a process of its own; whether it came to the end.
bool run_apart(const Options& options, std::uint64_t first, Progress& progress) {
  progress.call = first;
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
#if !QUANTA_ADDRESS_SANITIZER && !QUANTA_THREAD_SANITIZER
    const rlimit limit{kMostMemory, kMostMemory};
    ::setrlimit(RLIMIT_AS, &limit);
#endif
    try {
      for (std::uint64_t i = first; i < options.from + options.calls; ++i) {
        set_time_limit();
        make_call(options, i, progress);
      }
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
      std::fflush(stdout);
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  ++progress.findings;
  print_finding(
      options, progress.call, progress.op.data(),
      WIFSIGNALED(status)
          ? std::string("ended by signal ") + std::to_string(WTERMSIG(status)) +
                (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM ? " (too slow)" : "")
          : std::string("ended with status ") + std::to_string(WEXITSTATUS(status)));
  return false;
}

std::uint64_t number_of(const char* text) { return std::strtoull(text, nullptr, 10); }

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i];
    const char* value = arguments[i + 1];
    if (name == "--calls") {
      options.calls = number_of(value);
    } else if (name == "--seed") {
      options.seed = number_of(value);
    } else if (name == "--op") {
      options.op = value;
    } else if (name == "--from") {
      options.from = number_of(value);
    } else if (name == "--only") {
      options.only = true;
      options.from = number_of(value);
      options.calls = 1;
    } else {
      throw quanta::ArgumentError(
          "api_fuzz: expected --calls, --seed, --op, --from or --only, got " + std::string(name));
    }
  }
  return options;
}

int run(int count, char** arguments) {
  const Options options = parse(count, arguments);
  if (options.only) {
    Progress progress{};
    make_call(options, options.from, progress);
    return progress.findings == 0 ? 0 : 1;
  }
  void* shared =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("mmap failed");
  Progress& progress = *new (shared) Progress{};
  for (std::uint64_t first = options.from; first < options.from + options.calls;
       first = progress.call + 1) {
    if (run_apart(options, first, progress)) break;
  }
  std::printf(
      "%llu calls: %llu calculated (%llu by a formula as well), %llu refused, %llu only "
      "inferred, %llu findings\n",
      static_cast<unsigned long long>(options.calls),
      static_cast<unsigned long long>(progress.calculated),
      static_cast<unsigned long long>(progress.by_reference),
      static_cast<unsigned long long>(progress.refused),
      static_cast<unsigned long long>(progress.skipped),
      static_cast<unsigned long long>(progress.findings));
  return progress.findings == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
