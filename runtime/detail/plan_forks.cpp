#include "quanta/runtime/detail/plan_forks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "quanta/runtime/detail/buffer_places.h"
#include "quanta/runtime/detail/item_loop.h"
#include "quanta/runtime/detail/workers.h"

namespace quanta::replay::detail {
namespace {

void run_lane(const Layout& layout, const Instance& instance, const Fork& fork,
              std::size_t number) {
  const std::vector<std::size_t>& lane = fork.lanes[number];
  for (std::size_t i = 0; i < lane.size(); ++i) {
    layout.run_step(instance, lane[i], i + 1 < lane.size() ? lane[i + 1] : fork.end);
  }
}

void run_fork(const Layout& layout, const Instance& instance, const Fork& fork) {
  if (fork.lanes.size() == 1) {
    const quanta::detail::OneThread alone;
    return run_lane(layout, instance, fork, 0);
  }
  const auto count = static_cast<std::int64_t>(fork.lanes.size());
  quanta::detail::for_each_item(count, fork.length, [&](std::int64_t lane, int) {
    run_lane(layout, instance, fork, static_cast<std::size_t>(lane));
  });
}

// Null where there is no memory for one.
std::unique_ptr<Instance> try_take(const Layout& layout) noexcept {
  try {
    return layout.take();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

ForkedLayout::ForkedLayout(const Program& program, std::vector<Fork> some_forks)
    : forks(std::move(some_forks)) {
  layout.program = program;
  layout.arena_bytes = place_buffers(layout.program, forks);
}

void ForkedLayout::run(std::unique_ptr<Instance> instance, std::span<const Place> in_places,
                       std::span<const Place> out_places) const {
  layout.run_between(std::move(instance), in_places, out_places, [&](const Instance& own) {
    std::size_t begin = 0;
    for (const Fork& fork : forks) {
      layout.run_steps(own, begin, fork.begin);
      run_fork(layout, own, fork);
      begin = fork.end;
    }
    layout.run_steps(own, begin, layout.program.steps.size());
  });
}

PlanForks::PlanForks(const Layout& layout, int threads, Now now)
    : layout_(layout), threads_(threads), now_(now), trial_(layout.program.steps.size()) {}

double PlanForks::seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string PlanForks::to_string() const {
  std::shared_ptr<const ForkedLayout> forked;
  {
    const std::lock_guard lock(mutex_);
    forked = settled_;
  }
  std::string text;
  if (forked == nullptr) return text;
  for (const Fork& fork : forked->forks) {
    text += fmt::format("{} threads: steps {} to {} ", threads_, fork.begin + 1, fork.end);
    text += fork.lanes.size() == 1 ? "by one of them\n"
                                   : fmt::format("side by side in {} lanes\n", fork.lanes.size());
  }
  return text;
}

void PlanForks::choose(const StepTimes& times) const {
  std::shared_ptr<const ForkedLayout> forked;
  try {
    std::vector<Fork> forks = best_forks(layout_.program, times, threads_);
    if (!forks.empty()) {
      forked = std::make_shared<const ForkedLayout>(layout_.program, std::move(forks));
    }
  } catch (...) {  // no memory for it: runs go on without
  }
  const std::lock_guard lock(mutex_);
  trial_.set_forks(forked != nullptr);
  tried_ = std::move(forked);
  is_choosing_ = false;
  follow_trial();
}

// With mutex_ held, after each word to the trial: what runs take if it has come to an end.
void PlanForks::follow_trial() const {
  if (trial_.turn() != Turn::Settled || trial_.wants_forks()) return;
  settled_ = trial_.is_forked() ? std::move(tried_) : nullptr;
  tried_ = nullptr;
  if (settled_ != nullptr) layout_.forget_free();  // the memory of the other way
}

void PlanForks::give_up(Turn turn) const {
  const std::lock_guard lock(mutex_);
  if (turn != trial_.turn()) return;
  trial_.give_up();
  follow_trial();
}

void PlanForks::note_run(Turn turn, double seconds) const {
  const std::lock_guard lock(mutex_);
  if (turn != trial_.turn()) return;
  if (turn == Turn::Settled) return trial_.note_settled();
  trial_.note_run(turn, seconds);
  follow_trial();
}

void PlanForks::run_timing_steps(Turn turn, std::span<const Place> in_places,
                                 std::span<const Place> out_places) const {
  const std::size_t steps = layout_.program.steps.size();
  std::vector<bool> is_timed(steps, true);
  if (turn == Turn::TimeAlone) {
    const std::vector<double> shared = [&] {
      const std::lock_guard lock(mutex_);
      return trial_.times().shared;
    }();
    is_timed = may_fork(layout_.program, shared);
    if (std::ranges::find(is_timed, true) == is_timed.end()) {
      layout_.run(layout_.take(), in_places, out_places);
      return give_up(turn);
    }
  }
  std::vector<double> seconds(steps, std::numeric_limits<double>::infinity());
  layout_.run_between(layout_.take(), in_places, out_places, [&](const Instance& instance) {
    for (std::size_t i = 0; i < steps; ++i) {
      std::optional<quanta::detail::OneThread> alone;
      if (turn == Turn::TimeAlone && is_timed[i]) alone.emplace();
      const double begin = now_();
      layout_.run_step(instance, i, i + 1);
      if (is_timed[i]) seconds[i] = now_() - begin;
    }
  });
  const std::lock_guard lock(mutex_);
  trial_.note_steps(turn, seconds);
}

void PlanForks::run(std::span<const Place> in_places, std::span<const Place> out_places) const {
  Turn turn{};
  std::optional<StepTimes> times;              // from which this run chooses
  std::shared_ptr<const ForkedLayout> forked;  // that this run takes
  {
    const std::lock_guard lock(mutex_);
    turn = trial_.turn();
    if (trial_.wants_forks() && !is_choosing_) {
      times = trial_.times();
      is_choosing_ = true;
    }
    if (turn == Turn::Forked) forked = tried_;
    if (turn == Turn::Settled) forked = settled_;
  }
  if (times) choose(*times);
  if (turn == Turn::TimeShared || turn == Turn::TimeAlone) {
    return run_timing_steps(turn, in_places, out_places);
  }
  std::unique_ptr<Instance> instance = forked != nullptr ? try_take(forked->layout) : nullptr;
  if (instance == nullptr && forked != nullptr) {
    if (turn == Turn::Forked) give_up(turn);
    forked = nullptr;
  }
  if (instance == nullptr) instance = layout_.take();
  const bool is_timed = turn != Turn::Settled;
  const double begin = is_timed ? now_() : 0.0;
  if (forked != nullptr) {
    forked->run(std::move(instance), in_places, out_places);
  } else {
    layout_.run(std::move(instance), in_places, out_places);
  }
  note_run(turn, is_timed ? now_() - begin : 0.0);
}

}  // namespace quanta::replay::detail
