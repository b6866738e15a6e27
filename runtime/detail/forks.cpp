#include "quanta/runtime/detail/forks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace quanta::replay::detail {
namespace {

using quanta::detail::ItemLength;

// As many steps as a fork may have: enough for the branches of a block, and quick to look through.
constexpr std::size_t kMostSteps = 64;
// What lanes take beside their steps: about as much as a step that threads share.
constexpr double kLaneSeconds = 2e-6;
// Of longer steps threads take a part each as a rule.
constexpr double kShortSeconds = 50e-6;
// As ItemLength says.
constexpr double kLongSeconds = 100e-6;

/// Of each step the earlier ones, at most kMostSteps before it, that it must not run beside: one of the
/// two writes what the other one uses. Calls that give other results each time keep their order.
std::vector<std::vector<std::size_t>> find_conflicts(const Program& program) {
  struct Use {
    std::size_t step;
    bool writes;
  };
  std::vector<std::vector<Use>> uses(program.buffers.size());
  std::vector<Use> changing;
  std::vector<std::vector<std::size_t>> result(program.steps.size());
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const auto add = [&](std::vector<Use>& known, bool writes) {
      for (auto use = known.rbegin(); use != known.rend() && use->step + kMostSteps > i; ++use) {
        if (use->step != i && (use->writes || writes)) result[i].push_back(use->step);
      }
      known.push_back({i, writes});
    };
    const PlannedStep& step = program.steps[i];
    for (const Value& value : step.inputs) {
      if (program.buffers[value.buffer].kind != BufferKind::Constant) {
        add(uses[value.buffer], false);
      }
    }
    for (const Value& value : step.outputs) add(uses[value.buffer], true);
    if (!step.repeatable) add(changing, true);
  }
  return result;
}

/// The lanes of the steps from one on, while more are added.
class GrowingLanes {
 public:
  explicit GrowingLanes(std::size_t begin) : begin_(begin) {}

  /// The next step, which has to come after those.
  void add(const std::vector<std::size_t>& conflicts, double seconds) {
    const std::size_t own = root_.size();
    root_.push_back(own);
    seconds_.push_back(seconds);
    total_ += seconds;
    ++count_;
    for (const std::size_t step : conflicts) {
      if (step < begin_) continue;
      const std::size_t other = find(step - begin_);
      const std::size_t root = find(own);
      if (other == root) continue;
      root_[root] = other;
      seconds_[other] += seconds_[root];
      --count_;
    }
  }

  /// How long so many threads take, if each takes the longest lane that is left.
  double seconds(std::size_t threads) {
    sorted_.clear();
    for (std::size_t i = 0; i < root_.size(); ++i) {
      if (root_[i] == i) sorted_.push_back(seconds_[i]);
    }
    std::ranges::sort(sorted_, std::greater());
    busy_.assign(std::min(threads, sorted_.size()), 0.0);
    for (const double lane : sorted_) *std::ranges::min_element(busy_) += lane;
    return *std::ranges::max_element(busy_);
  }
  /// They never take less.
  double least_seconds(std::size_t threads) const {
    return total_ / static_cast<double>(std::min(threads, count_));
  }

  std::vector<std::vector<std::size_t>> lanes() {
    std::vector<std::vector<std::size_t>> result;
    std::vector<std::size_t> roots;
    for (std::size_t i = 0; i < root_.size(); ++i) {
      const std::size_t root = find(i);
      const auto known = std::ranges::find(roots, root);
      const auto at = static_cast<std::size_t>(known - roots.begin());
      if (known == roots.end()) {
        roots.push_back(root);
        result.emplace_back();
      }
      result[at].push_back(begin_ + i);
    }
    std::vector<std::size_t> order(result.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater(),
                             [&](std::size_t lane) { return seconds_[roots[lane]]; });
    std::vector<std::vector<std::size_t>> sorted;
    sorted.reserve(order.size());
    for (const std::size_t lane : order) sorted.push_back(std::move(result[lane]));
    return sorted;
  }

 private:
  std::size_t find(std::size_t i) {
    while (root_[i] != i) i = root_[i] = root_[root_[i]];
    return i;
  }

  std::size_t begin_;
  std::vector<std::size_t> root_;
  std::vector<double> seconds_;  // of a root: of its lane
  std::vector<double> sorted_, busy_;
  double total_ = 0.0;
  std::size_t count_ = 0;
};

// The steps up to which others may be looked at together with one: all of them may be in a fork.
std::size_t last_together(const StepTimes& times, std::size_t begin) {
  const std::size_t most = std::min(times.alone.size(), begin + kMostSteps);
  std::size_t end = begin;
  while (end < most && times.alone[end] < std::numeric_limits<double>::infinity()) ++end;
  return end;
}

}  // namespace

std::vector<bool> may_fork(const Program& program, const std::vector<double>& shared) {
  const std::vector<std::vector<std::size_t>> conflicts = find_conflicts(program);
  const std::size_t steps = program.steps.size();
  // Threads may share the rows of these, so they give the same bits with one thread as with several.
  const auto is_steady = [&](std::size_t i) { return program.steps[i].operation->works_by_rows(); };
  std::vector<bool> result(steps, false);
  for (std::size_t begin = 0; begin < steps;) {
    if (!is_steady(begin)) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < steps && is_steady(end)) ++end;
    for (std::size_t i = begin; i < end; ++i) result[i] = shared[i] < kShortSeconds;
    // Where a step needs nothing of the one before it, all that belongs to either may be in lanes.
    for (std::size_t i = begin + 1; i < end; ++i) {
      if (std::ranges::find(conflicts[i], i - 1) != conflicts[i].end()) continue;
      const std::size_t first = i < begin + kMostSteps ? begin : i - kMostSteps;
      for (std::size_t j = first; j < std::min(end, i + kMostSteps); ++j) result[j] = true;
    }
    begin = end;
  }
  return result;
}

std::vector<Fork> best_forks(const Program& program, const StepTimes& times, int threads) {
  const std::vector<std::vector<std::size_t>> conflicts = find_conflicts(program);
  const auto workers = static_cast<std::size_t>(threads);
  const std::size_t steps = program.steps.size();
  // What forks save, at most, of the steps before each one; and where the last of them begins.
  std::vector<double> saved(steps + 1, 0.0);
  std::vector<std::size_t> begins(steps + 1);
  std::iota(begins.begin(), begins.end(), std::size_t{0});
  const auto leave_out_last = [&](std::size_t end) {
    if (end == 0 || saved[end - 1] < saved[end]) return;
    saved[end] = saved[end - 1];
    begins[end] = end;
  };
  for (std::size_t begin = 0; begin < steps; ++begin) {
    leave_out_last(begin);
    GrowingLanes lanes(begin);
    double shared = 0.0;
    for (std::size_t end = begin + 1; end <= last_together(times, begin); ++end) {
      lanes.add(conflicts[end - 1], times.alone[end - 1]);
      shared += times.shared[end - 1];
      const double before = saved[begin] + shared - kLaneSeconds;
      // The lanes need not be looked at where even the least time saves nothing.
      if (before - lanes.least_seconds(workers) <= saved[end]) continue;
      const double saves = before - lanes.seconds(workers);
      if (saves > saved[end]) {
        saved[end] = saves;
        begins[end] = begin;
      }
    }
  }
  leave_out_last(steps);
  std::vector<Fork> forks;
  for (std::size_t end = steps; end > 0;) {
    const std::size_t begin = begins[end];
    if (begin == end) {
      --end;
      continue;
    }
    GrowingLanes lanes(begin);
    for (std::size_t i = begin; i < end; ++i) lanes.add(conflicts[i], times.alone[i]);
    forks.push_back({begin, end, lanes.lanes(), ItemLength::Short});
    // With a thread each, lanes take as long as the longest one.
    if (lanes.seconds(end - begin) >= kLongSeconds) forks.back().length = ItemLength::Long;
    end = begin;
  }
  std::ranges::reverse(forks);
  return forks;
}

}  // namespace quanta::replay::detail
