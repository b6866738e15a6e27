#include "quanta/runtime/detail/fork_trial.h"

#include <algorithm>
#include <limits>

namespace quanta::replay::detail {
namespace {

// Packing and page faults are over by then.
constexpr std::int64_t kFirstRuns = 2;
// Of each step the shortest time counts.
constexpr std::int64_t kTimedRuns = 2;
// Runs without and with forks by turns. Those of the first pair make what later ones find.
constexpr std::int64_t kPairs = 6;
constexpr std::int64_t kLeastPairs = 4;
// What is true while another process is busy, or a processor is slow, need not stay so. Each time it
// takes twice as many runs until all is timed again.
constexpr std::int64_t kSettledRuns = 1000;
constexpr std::int64_t kMostSettledRuns = std::int64_t{1} << 20U;

}  // namespace

ForkTrial::ForkTrial(std::size_t steps) : settled_runs_(kFirstRuns), later_runs_(kSettledRuns) {
  times_.shared.resize(steps);
  times_.alone.resize(steps);
}

void ForkTrial::settle(bool forked) noexcept {
  forked_ = forked;
  wants_forks_ = false;
  turn_ = Turn::Settled;
  runs_ = 0;
  settled_runs_ = later_runs_;
  later_runs_ = std::min(2 * later_runs_, kMostSettledRuns);
}

void ForkTrial::note_settled() noexcept {
  if (turn_ != Turn::Settled || wants_forks_ || ++runs_ < settled_runs_) return;
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  std::ranges::fill(times_.shared, kUnknown);
  std::ranges::fill(times_.alone, kUnknown);
  runs_ = 0;
  turn_ = Turn::TimeShared;
}

void ForkTrial::note_steps(Turn turn, std::span<const double> seconds) noexcept {
  if (turn != turn_ || (turn != Turn::TimeShared && turn != Turn::TimeAlone)) return;
  std::vector<double>& least = turn == Turn::TimeShared ? times_.shared : times_.alone;
  for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], seconds[i]);
  if (++runs_ < kTimedRuns) return;
  runs_ = 0;
  wants_forks_ = turn == Turn::TimeAlone;
  turn_ = wants_forks_ ? Turn::Settled : Turn::TimeAlone;
}

void ForkTrial::set_forks(bool there_are_some) noexcept {
  if (!there_are_some) return settle(false);
  wants_forks_ = false;
  runs_ = 0;
  shorter_ = 0;
  turn_ = Turn::Shared;
}

void ForkTrial::note_run(Turn turn, double seconds) noexcept {
  if (turn != turn_) return;
  if (turn == Turn::Shared) {
    shared_seconds_ = seconds;
    turn_ = Turn::Forked;
  } else if (turn == Turn::Forked) {
    if (runs_ > 0 && seconds < shared_seconds_) ++shorter_;
    turn_ = Turn::Shared;
    if (++runs_ == kPairs) settle(shorter_ >= kLeastPairs);
  }
}

}  // namespace quanta::replay::detail
