// Which steps of a plan run side by side, of programs made by hand.

#include "quanta/runtime/detail/forks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "plan_support.h"
#include "quanta/runtime/detail/fork_trial.h"
#include "quanta/runtime/detail/item_loop.h"
#include "quanta/runtime/random.h"
#include "random_network.h"

namespace quanta::replay {
namespace {

using detail::BufferKind;
using detail::Fork;
using detail::ForkTrial;
using detail::Program;
using detail::StepTimes;
using detail::Value;
using quanta::detail::ItemLength;
using test::check_forks;
using test::conflict;

/// What a step reads and writes, by number of the buffer.
struct Uses {
  std::vector<std::size_t> reads, writes;
  bool repeatable = true;
};

Program program_of(const std::vector<Uses>& steps) {
  Program program;
  const auto value = [&](std::size_t buffer) {
    if (program.buffers.size() <= buffer) program.buffers.resize(buffer + 1);
    Value result;
    result.buffer = buffer;
    return result;
  };
  for (const Uses& uses : steps) {
    detail::PlannedStep step;
    for (const std::size_t buffer : uses.reads) step.inputs.push_back(value(buffer));
    for (const std::size_t buffer : uses.writes) step.outputs.push_back(value(buffer));
    step.repeatable = uses.repeatable;
    program.steps.push_back(std::move(step));
  }
  return program;
}

StepTimes same_times(std::size_t steps, double shared, double alone) {
  return {std::vector<double>(steps, shared), std::vector<double>(steps, alone)};
}

/// x is 0; two branches of two steps, and their sum.
std::vector<Uses> two_branches() {
  return {{{0}, {1}}, {{1}, {2}}, {{0}, {3}}, {{3}, {4}}, {{2, 4}, {5}}};
}

TEST_CASE("forks: branches run side by side where that takes less time") {
  const Program program = program_of(two_branches());
  const std::vector<Fork> both{{0, 4, {{0, 1}, {2, 3}}, ItemLength::Long}};
  CHECK(detail::best_forks(program, same_times(5, 0.8, 1.0), 2) == both);
  // Four steps shared take as long as two alone.
  CHECK(detail::best_forks(program, same_times(5, 0.5, 1.0), 2).empty());
  CHECK(detail::best_forks(program, same_times(5, 0.5, 1.01), 2).empty());
  CHECK(detail::best_forks(program, same_times(5, 0.5, 0.99), 2) == both);
  CHECK(detail::best_forks(program, same_times(5, 40e-6, 49e-6), 2) ==
        std::vector<Fork>{{0, 4, {{0, 1}, {2, 3}}, ItemLength::Short}});
  // Nothing is won that lanes do not take themselves.
  CHECK(detail::best_forks(program, same_times(5, 0.8e-6, 1e-6), 2).empty());
  // The longest lane comes first.
  StepTimes times = same_times(5, 0.8, 1.0);
  times.alone[3] = 1.2;
  CHECK(detail::best_forks(program, times, 2) ==
        std::vector<Fork>{{0, 4, {{2, 3}, {0, 1}}, ItemLength::Long}});
  // Only the steps in the middle are worth it.
  times = same_times(5, 0.5, 1.2);
  times.alone[1] = times.alone[2] = 1.0;
  times.shared[1] = times.shared[2] = 1.0;
  CHECK(detail::best_forks(program, times, 2) ==
        std::vector<Fork>{{1, 3, {{1}, {2}}, ItemLength::Long}});
}

TEST_CASE("forks: steps run on one thread where several take longer") {
  const Program program = program_of({{{0}, {1}}, {{1}, {2}}, {{2}, {3}}, {{3}, {4}}});
  StepTimes times = same_times(4, 0.5, 1.0);
  times.alone[1] = 0.3;
  times.alone[2] = 0.4;
  CHECK(detail::best_forks(program, times, 4) ==
        std::vector<Fork>{{1, 3, {{1, 2}}, ItemLength::Long}});
  CHECK(detail::best_forks(Program(), StepTimes(), 4).empty());
}

TEST_CASE("forks: what one step writes and another uses keeps its order") {
  const auto count = [](const std::vector<Uses>& steps) {
    return detail::best_forks(program_of(steps), same_times(steps.size(), 0.9, 1.0), 2).size();
  };
  CHECK(count({{{0}, {1}}, {{0}, {2}}}) == 1);
  CHECK(count({{{0}, {1}}, {{1}, {2}}}) == 0);
  CHECK(count({{{1}, {2}}, {{0}, {1}}}) == 0);  // it reads what was there before
  CHECK(count({{{0}, {1}}, {{0}, {1}}}) == 0);  // parts of one result
  CHECK(count({{{0}, {1}, false}, {{0}, {2}, false}}) == 0);
  CHECK(count({{{0}, {1}, false}, {{0}, {2}}}) == 1);
  // What is in no way connected but by a third step.
  CHECK(count({{{0}, {1}}, {{0}, {2}}, {{1, 2}, {3}}}) == 1);
  Program constant = program_of({{{0, 3}, {1}}, {{0, 3}, {2}}});
  constant.buffers[3].kind = BufferKind::Constant;
  CHECK(detail::best_forks(constant, same_times(2, 0.9, 1.0), 2).size() == 1);
}

double seconds_of(const StepTimes& times, const std::vector<Fork>& forks, std::size_t threads) {
  double seconds = 0.0;
  for (const double step : times.shared) seconds += step;
  for (const Fork& fork : forks) {
    std::vector<double> busy(threads, 0.0);
    for (const std::vector<std::size_t>& lane : fork.lanes) {
      double& first = *std::ranges::min_element(busy);
      for (const std::size_t step : lane) first += times.alone[step];
    }
    for (std::size_t i = fork.begin; i < fork.end; ++i) seconds -= times.shared[i];
    seconds += *std::ranges::max_element(busy);
  }
  return seconds;
}

/// The lanes of steps [begin, end), found from their conflicts one by one.
Fork fork_of(const Program& program, const StepTimes& times, std::size_t begin, std::size_t end) {
  std::vector<std::size_t> lane(end - begin);
  for (std::size_t i = 0; i < lane.size(); ++i) lane[i] = i;
  for (std::size_t a = begin; a < end; ++a) {
    for (std::size_t b = begin; b < a; ++b) {
      if (!conflict(program, a, b)) continue;
      const std::size_t from = lane[a - begin];
      const std::size_t to = lane[b - begin];
      std::ranges::replace(lane, std::max(from, to), std::min(from, to));
    }
  }
  std::map<std::size_t, std::vector<std::size_t>> lanes;
  for (std::size_t i = begin; i < end; ++i) lanes[lane[i - begin]].push_back(i);
  Fork fork{begin, end, {}};
  for (auto& [number, steps] : lanes) fork.lanes.push_back(std::move(steps));
  const auto seconds = [&](const std::vector<std::size_t>& steps) {
    double sum = 0.0;
    for (const std::size_t step : steps) sum += times.alone[step];
    return sum;
  };
  std::ranges::stable_sort(fork.lanes, std::greater(), seconds);
  return fork;
}

std::size_t below_of(Generator& generator, std::size_t count) {
  return static_cast<std::size_t>(test::below(generator, static_cast<std::int64_t>(count)));
}

TEST_CASE("forks: no others of random programs take less time") {
  Generator generator(5);
  const auto below = [&](std::size_t count) { return below_of(generator, count); };
  std::size_t found = 0;
  for (int repeat = 0; repeat < 300; ++repeat) {
    CAPTURE(repeat);
    const std::size_t count = 2 + below(6);
    std::vector<Uses> steps;
    for (std::size_t i = 0; i < count; ++i) {
      Uses uses;
      uses.reads = {below(i + 1)};
      if (below(3) == 0) uses.reads.push_back(below(i + 1));
      uses.writes = {below(8) == 0 ? below(i + 1) : i + 1};
      steps.push_back(std::move(uses));
    }
    const Program program = program_of(steps);
    StepTimes times;
    for (std::size_t i = 0; i < count; ++i) {
      times.alone.push_back(static_cast<double>(1 + below(9)));
      times.shared.push_back(times.alone.back() * (0.4 + 0.1 * static_cast<double>(below(8))));
    }
    const int threads = static_cast<int>(2 + below(3));
    const std::vector<Fork> forks = detail::best_forks(program, times, threads);
    check_forks(program, forks);
    found += forks.empty() ? 0U : 1U;
    const double got = seconds_of(times, forks, static_cast<std::size_t>(threads));
    // All ways to cut the steps, each piece shared or a fork.
    std::vector<double> least(count + 1, 0.0);
    for (std::size_t end = 1; end <= count; ++end) {
      least[end] = least[end - 1] + times.shared[end - 1];
      for (std::size_t begin = 0; begin < end; ++begin) {
        double outside = 0.0;
        for (std::size_t i = 0; i < count; ++i) {
          outside += i < begin || i >= end ? times.shared[i] : 0.0;
        }
        const Fork fork = fork_of(program, times, begin, end);
        const double piece = seconds_of(times, {fork}, static_cast<std::size_t>(threads)) - outside;
        least[end] = std::min(least[end], least[begin] + piece);
      }
    }
    CHECK(got == doctest::Approx(least[count]).epsilon(1e-4));
  }
  CHECK(found > 200);
}

TEST_CASE("forks: of long programs they keep every order, however far apart two steps are") {
  constexpr std::size_t kSteps = 200;
  std::size_t far = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    Generator generator(seed);
    const auto below = [&](std::size_t count) { return below_of(generator, count); };
    // Step i writes buffer i + 1. Most read what was there first, some what was written about 64 steps
    // before, which is as far as a fork goes.
    std::vector<Uses> steps;
    for (std::size_t i = 0; i < kSteps; ++i) {
      Uses uses{{0}, {i + 1}};
      const std::size_t distance = below(4) == 0 ? 62 + below(5) : kSteps;
      if (distance <= i) uses.reads = {i + 1 - distance};
      if (distance <= i && distance == 63) ++far;
      if (below(20) == 0 && i > 0) uses.writes = {i};
      steps.push_back(std::move(uses));
    }
    const Program program = program_of(steps);
    const std::vector<Fork> forks = detail::best_forks(program, same_times(kSteps, 1.0, 1.001), 4);
    CHECK(forks.size() >= 3);
    check_forks(program, forks);
    for (const Fork& fork : forks) CHECK(fork.end - fork.begin <= 64);
  }
  CHECK(far > 100);
}

using Turn = ForkTrial::Turn;

/// How many runs there are until something is timed.
int settled_runs(ForkTrial& trial) {
  int runs = 0;
  for (; trial.turn() == Turn::Settled && runs < 5000; ++runs) trial.note_settled();
  return runs;
}

void time_steps(ForkTrial& trial, const std::vector<double>& first,
                const std::vector<double>& second) {
  for (const Turn turn : {Turn::TimeShared, Turn::TimeAlone}) {
    CHECK(trial.turn() == turn);
    CHECK(!trial.wants_forks());
    trial.note_steps(turn, first);
    trial.note_steps(turn, second);
  }
  CHECK(trial.wants_forks());
}

void run_pairs(ForkTrial& trial, const std::vector<bool>& shorter) {
  for (const bool is_shorter : shorter) {
    CHECK(trial.turn() == Turn::Shared);
    trial.note_run(Turn::Shared, 1.0);
    CHECK(trial.turn() == Turn::Forked);
    trial.note_run(Turn::Forked, is_shorter ? 0.9 : 1.1);
  }
  CHECK(trial.turn() == Turn::Settled);
}

TEST_CASE("forks: a trial times steps, then runs by turns, and again later") {
  ForkTrial trial(2);
  CHECK(settled_runs(trial) == 2);
  const std::vector<double> first{3.0, 1.0}, second{2.0, 4.0};
  trial.note_steps(Turn::TimeAlone, std::vector<double>{0.0, 0.0});  // of another turn
  trial.note_settled();
  trial.note_run(Turn::Shared, 1.0);
  time_steps(trial, first, second);
  CHECK(trial.times().shared == std::vector<double>{2.0, 1.0});
  CHECK(trial.times().alone == std::vector<double>{2.0, 1.0});
  CHECK(settled_runs(trial) == 5000);  // nobody has said which forks there are
  trial.set_forks(true);
  CHECK(!trial.wants_forks());
  run_pairs(trial, {false, true, true, false, true, true});  // the first pair does not count
  CHECK(trial.is_forked());
  CHECK(settled_runs(trial) == 1000);
  time_steps(trial, {7.0, 7.0}, {8.0, 8.0});
  CHECK(trial.times().alone == std::vector<double>{7.0, 7.0});
  CHECK(trial.is_forked());  // as before
  trial.set_forks(true);
  run_pairs(trial, {true, true, true, false, false, true});
  CHECK(!trial.is_forked());
  CHECK(settled_runs(trial) == 2000);
  time_steps(trial, first, second);
  trial.set_forks(false);
  CHECK(!trial.is_forked());
  CHECK(settled_runs(trial) == 4000);
  trial.note_steps(Turn::TimeShared, first);
  trial.give_up();
  CHECK(trial.turn() == Turn::Settled);
  CHECK(settled_runs(trial) == 5000);
}

template <bool by_rows>
struct Step : Op<Step<by_rows>> {
  static constexpr std::string_view kName = "step";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = by_rows;
  void infer(const Arguments&, Results&) const override {}
  std::string_view cpu(const Arguments&, std::span<const Tensor>) const override { return {}; }
};

TEST_CASE("forks: only steps that work by rows may be in forks, short ones or beside others") {
  const auto which = [](const std::vector<Uses>& steps, const std::vector<bool>& by_rows,
                        double seconds) {
    Program program = program_of(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (by_rows[i]) {
        program.steps[i].operation = std::make_shared<Step<true>>();
      } else {
        program.steps[i].operation = std::make_shared<Step<false>>();
      }
    }
    return detail::may_fork(program, std::vector<double>(steps.size(), seconds));
  };
  const std::vector<Uses> line{{{0}, {1}}, {{1}, {2}}, {{2}, {3}}};
  const std::vector<bool> all(5, true), none(5, false), first_of_line{true, false, false};
  const std::vector<bool> line_all(3, true), line_none(3, false);
  CHECK(which(line, line_all, 1.0) == line_none);
  CHECK(which(line, line_all, 1e-5) == line_all);
  CHECK(which(line, first_of_line, 1e-5) == first_of_line);
  CHECK(which(two_branches(), all, 1.0) == all);
  CHECK(which(two_branches(), none, 1.0) == none);
  const std::vector<bool> without_second{true, false, true, true, true};
  // Step 2 needs nothing of step 1, which it must not run beside.
  CHECK(which(two_branches(), without_second, 1.0) == none);
}

}  // namespace
}  // namespace quanta::replay
