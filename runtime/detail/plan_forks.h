#pragma once

// Private: a plan some of whose steps run side by side.

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "quanta/runtime/detail/fork_trial.h"
#include "quanta/runtime/detail/forks.h"
#include "quanta/runtime/detail/plan_layout.h"

namespace quanta::replay::detail {

/// The steps with forks.
struct ForkedLayout {
  Layout layout;
  std::vector<Fork> forks;

  ForkedLayout(const Program& program, std::vector<Fork> some_forks);
  void run(std::unique_ptr<Instance> instance, std::span<const Place> in_places,
           std::span<const Place> out_places) const;
};

/// How runs with so many threads do the steps of a layout on the CPU: with forks where runs have shown
/// that they take less time so. For many threads at once.
class PlanForks {
 public:
  /// Seconds since whenever.
  using Now = double (*)();
  PlanForks(const Layout& layout, int threads, Now now = &seconds_now);
  static double seconds_now();

  int threads() const noexcept { return threads_; }
  void run(std::span<const Place> in_places, std::span<const Place> out_places) const;
  /// A line for each fork that runs take at the moment.
  std::string to_string() const;

 private:
  using Turn = ForkTrial::Turn;
  void choose(const StepTimes& times) const;
  void run_timing_steps(Turn turn, std::span<const Place> in_places,
                        std::span<const Place> out_places) const;
  void note_run(Turn turn, double seconds) const;
  void give_up(Turn turn) const;
  void follow_trial() const;

  const Layout& layout_;
  int threads_;
  Now now_;
  mutable std::mutex mutex_;
  mutable ForkTrial trial_;
  mutable bool is_choosing_ = false;  // a thread does
  // What runs take that are settled, and what is tried beside it; null: no forks.
  mutable std::shared_ptr<const ForkedLayout> settled_, tried_;
};

}  // namespace quanta::replay::detail
