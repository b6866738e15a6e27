#pragma once

// Private: which steps of a plan run side by side, with one thread each, and which by all threads.

#include <cstddef>
#include <vector>

#include "quanta/runtime/detail/item_loop.h"
#include "quanta/runtime/detail/replay_steps.h"

namespace quanta::replay::detail {

/// Steps [begin, end) in lanes that need nothing of each other; each lane's are in their order. What is
/// one lane is run by one thread.
struct Fork {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<std::vector<std::size_t>> lanes;
  quanta::detail::ItemLength length = quanta::detail::ItemLength::Short;  ///< of the longest lane

  friend bool operator==(const Fork&, const Fork&) = default;
};

/// Seconds of each step, in a run whose steps came one after the other; infinity: not known.
struct StepTimes {
  std::vector<double> shared;  ///< by all threads
  std::vector<double> alone;   ///< by one
};

/// The steps that might take less time in a fork, as far as one can tell without their times alone: which
/// give the same bits with any number of threads, and have others that they may run beside or are short.
std::vector<bool> may_fork(const Program& program, const std::vector<double>& shared);

/// The forks, one behind the other, with which so many threads take the shortest time: a lane is as long
/// as its steps alone, what is in no fork is shared. Lanes begin with the longest.
std::vector<Fork> best_forks(const Program& program, const StepTimes& times, int threads);

}  // namespace quanta::replay::detail
