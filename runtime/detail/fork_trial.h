#pragma once

// Private: whether runs of a plan take less time with forks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quanta/runtime/detail/forks.h"

namespace quanta::replay::detail {

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
  /// The turn cannot be done: without forks.
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
