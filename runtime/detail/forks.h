#pragma once

// Private: which steps of a plan run side by side, with one thread each, and which by all threads.

#include <cstdint>
#include <span>
#include <vector>

#include "quanta/runtime/detail/replay_steps.h"

namespace quanta::replay::detail {

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

/// Finds out whether runs with forks are shorter: it has some runs timed, and goes by what most of them
/// say; from time to time it begins anew. Not for several threads at once.
class ForkTrial {
 public:
  enum class Turn : std::uint8_t {
    Settled,     ///< as is_forked() says; nothing is timed
    TimeShared,  ///< each step, by all threads
    TimeAlone,   ///< each step that may be in a fork, by one thread
    Shared,      ///< the run, without forks
    Forked,      ///< the run, with forks
  };

  explicit ForkTrial(std::size_t steps);

  /// What the next run is to do.
  Turn turn() const noexcept { return turn_; }
  /// What runs do whose turn is Settled.
  bool is_forked() const noexcept { return forked_; }

  /// A run whose turn was that, and what it has measured. One that is late says nothing.
  void note_settled() noexcept;
  void note_steps(Turn turn, std::span<const double> seconds) noexcept;
  void note_run(Turn turn, double seconds) noexcept;

  /// All steps have been timed: what follows from it is to be said next.
  bool wants_forks() const noexcept { return wants_forks_; }
  const StepTimes& times() const noexcept { return times_; }
  void set_forks(bool there_are_some) noexcept;
  /// Without forks, whatever the turn.
  void give_up() noexcept { settle(false); }

 private:
  void settle(bool forked) noexcept;

  Turn turn_ = Turn::Settled;
  bool forked_ = false;
  bool wants_forks_ = false;
  StepTimes times_;
  std::int64_t runs_ = 0;      ///< of this turn; of Shared and Forked: pairs
  std::int64_t settled_runs_;  ///< that come before the steps are timed
  std::int64_t later_runs_;    ///< the next time
  std::int64_t shorter_ = 0;   ///< pairs whose forked run was the shorter one
  double shared_seconds_ = 0.0;
};

}  // namespace quanta::replay::detail
