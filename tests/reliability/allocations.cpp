// Memory runs out at every place where the demo's work asks for some. quanta_allocations [EVERY]
// tries the first allocations of each step and each EVERY-th (default: all) of the rest: the step throws quanta::Error or
// std::bad_alloc, what was there before stays as it was, and memory does not get lost.

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>

#include "faults.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "workflow.h"

namespace {

namespace faults = quanta::faults;
using quanta::reliability::Step;
using quanta::reliability::Workflow;

// How many allocations ended in what.
struct Counts {
  std::int64_t all = 0, error = 0, bad_alloc = 0, no_matter = 0, foreign = 0;
};

// Whether the step has an allocation of this number.
bool try_one(const Step& step, std::int64_t at, Counts& counts) {
  faults::arm({.call = faults::Call::Allocate, .at = at});
  std::int64_t* count = &counts.no_matter;  // as where a cache stays smaller
  try {
    step.run();
  } catch (const quanta::Error&) {
    count = &counts.error;
  } catch (const std::bad_alloc&) {
    count = &counts.bad_alloc;
  }
  switch (faults::disarm()) {
    case faults::End::NotReached:
      return false;
    case faults::End::Foreign:
      count = &counts.foreign;
      break;
    case faults::End::Failed:
      break;
  }
  ++*count;
  ++counts.all;
  return true;
}

void try_all(const Workflow& workflow, const Step& step, std::int64_t every) {
  step.run();  // caches are warm
  workflow.check();
  const std::size_t before = quanta::allocator_stats().in_use;
  Counts counts;
  constexpr std::int64_t kFirst = 16;
  for (std::int64_t at = 0; try_one(step, at, counts); at += at < kFirst ? 1 : every) {
    if (counts.all % 64 == 0) workflow.check();
  }
  workflow.check();
  const std::size_t after = quanta::allocator_stats().in_use;
  std::printf("%-20s %9jd %9jd %9jd %9jd %9jd\n", step.name.c_str(), std::intmax_t{counts.all},
              std::intmax_t{counts.error}, std::intmax_t{counts.bad_alloc},
              std::intmax_t{counts.no_matter}, std::intmax_t{counts.foreign});
  std::fflush(stdout);
  if (after > before) {
    throw std::logic_error(step.name + ": " + std::to_string(after - before) + " bytes got lost");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t every = argc > 1 ? std::atoll(argv[1]) : 1;
  if (every < 1 || argc > 2) {
    std::fprintf(stderr, "usage: %s [EVERY]\n", argv[0]);
    return 2;
  }
  quanta::set_num_threads(1);  // so that a step's allocations are numbered alike each time
  const auto folder =
      std::filesystem::temp_directory_path() / ("quanta_allocations_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  int status = 0;
  try {
    const Workflow workflow(folder);
    std::printf("%-20s %9s %9s %9s %9s %9s\n", "step", "failures", "Error", "bad_alloc",
                "no matter", "spared");
    for (const Step& step : workflow.steps()) try_all(workflow, step, every);
  } catch (const std::exception& error) {
    faults::disarm();
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  std::filesystem::remove_all(folder);
  return status;
}
