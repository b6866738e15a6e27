// Plans whose steps run side by side.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/detail/forks.h"
#include "quanta/runtime/detail/plan_forks.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/replay_plan.h"
#include "random_network.h"
#include "support/compare.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta::replay {
namespace {

using detail::Buffer;
using detail::BufferKind;
using detail::Fork;
using detail::ForkTrial;
using detail::Place;
using detail::Program;
using detail::StepTimes;
using detail::Value;
using test::combined;
using test::kColumns;
using test::kRows;

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
  const std::vector<Fork> both{{0, 4, {{0, 1}, {2, 3}}}};
  CHECK(detail::best_forks(program, same_times(5, 0.8, 1.0), 2) == both);
  // Four steps shared take as long as two alone.
  CHECK(detail::best_forks(program, same_times(5, 0.5, 1.0), 2).empty());
  CHECK(detail::best_forks(program, same_times(5, 0.5, 1.01), 2).empty());
  CHECK(detail::best_forks(program, same_times(5, 0.5, 0.99), 2) == both);
  // Nothing is won that lanes do not take themselves.
  CHECK(detail::best_forks(program, same_times(5, 0.8e-6, 1e-6), 2).empty());
  // The longest lane comes first.
  StepTimes times = same_times(5, 0.8, 1.0);
  times.alone[3] = 1.2;
  CHECK(detail::best_forks(program, times, 2) == std::vector<Fork>{{0, 4, {{2, 3}, {0, 1}}}});
  // Only the steps in the middle are worth it.
  times = same_times(5, 0.5, 1.2);
  times.alone[1] = times.alone[2] = 1.0;
  times.shared[1] = times.shared[2] = 1.0;
  CHECK(detail::best_forks(program, times, 2) == std::vector<Fork>{{1, 3, {{1}, {2}}}});
}

TEST_CASE("forks: steps run on one thread where several take longer") {
  const Program program = program_of({{{0}, {1}}, {{1}, {2}}, {{2}, {3}}, {{3}, {4}}});
  StepTimes times = same_times(4, 0.5, 1.0);
  times.alone[1] = 0.3;
  times.alone[2] = 0.4;
  CHECK(detail::best_forks(program, times, 4) == std::vector<Fork>{{1, 3, {{1, 2}}}});
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

bool conflict(const Program& program, std::size_t a, std::size_t b) {
  const auto uses = [&](std::size_t step, std::size_t buffer, bool writes_only) {
    const auto is_it = [&](const Value& value) { return value.buffer == buffer; };
    return std::ranges::any_of(program.steps[step].outputs, is_it) ||
           (!writes_only && std::ranges::any_of(program.steps[step].inputs, is_it));
  };
  for (std::size_t buffer = 0; buffer < program.buffers.size(); ++buffer) {
    if (program.buffers[buffer].kind == BufferKind::Constant) continue;
    if ((uses(a, buffer, true) && uses(b, buffer, false)) ||
        (uses(a, buffer, false) && uses(b, buffer, true))) {
      return true;
    }
  }
  return false;
}

/// Every step of a fork once, in its order, and no two lanes need anything of each other.
void check_forks(const Program& program, const std::vector<Fork>& forks) {
  std::size_t last = 0;
  for (const Fork& fork : forks) {
    CHECK(fork.begin >= last);
    last = fork.end;
    std::set<std::size_t> seen;
    for (std::size_t a = 0; a < fork.lanes.size(); ++a) {
      CHECK(std::ranges::is_sorted(fork.lanes[a]));
      for (const std::size_t step : fork.lanes[a]) {
        CHECK(step >= fork.begin);
        CHECK(step < fork.end);
        CHECK(seen.insert(step).second);
      }
      for (std::size_t b = 0; b < a; ++b) {
        for (const std::size_t one : fork.lanes[a]) {
          for (const std::size_t other : fork.lanes[b]) CHECK(!conflict(program, one, other));
        }
      }
    }
    CHECK(seen.size() == fork.end - fork.begin);
  }
  CHECK(last <= program.steps.size());
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

TEST_CASE("forks: no others of random programs take less time") {
  Generator generator(5);
  const auto below = [&](std::size_t count) {
    return std::min(count - 1,
                    static_cast<std::size_t>(generator.uniform() * static_cast<float>(count)));
  };
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

/// Buffers that are needed at the same time lie apart, as steps of other lanes may run in between.
void check_memory(const Program& program, const std::vector<Fork>& forks) {
  // Each step's place in time: of what runs side by side, the whole fork.
  struct Span {
    std::size_t begin, end, lane;
  };
  std::vector<Span> spans;
  for (std::size_t i = 0; i < program.steps.size(); ++i) spans.push_back({i, i, 0});
  std::size_t lanes = 0;
  for (const Fork& fork : forks) {
    for (const auto& lane : fork.lanes) {
      ++lanes;
      for (const std::size_t step : lane) spans[step] = {fork.begin, fork.end - 1, lanes};
    }
  }
  struct Life {
    std::set<std::size_t> steps, lanes;
  };
  std::vector<Life> lives(program.buffers.size());
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    for (const auto* values : {&program.steps[i].inputs, &program.steps[i].outputs}) {
      for (const Value& value : *values) {
        lives[value.buffer].steps.insert(i);
        lives[value.buffer].lanes.insert(spans[i].lane);
      }
    }
  }
  const auto from = [&](const Life& life) { return spans[*life.steps.begin()].begin; };
  const auto to = [&](const Life& life) { return spans[*life.steps.rbegin()].end; };
  for (std::size_t a = 0; a < program.buffers.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const Buffer& left = program.buffers[a];
      const Buffer& right = program.buffers[b];
      const Life& one = lives[a];
      const Life& other = lives[b];
      if (left.kind != BufferKind::Arena || right.kind != BufferKind::Arena) continue;
      if (one.steps.empty() || other.steps.empty()) continue;
      const bool same_lane =
          one.lanes.size() == 1 && one.lanes == other.lanes && *one.lanes.begin() != 0;
      const bool meet = same_lane ? *one.steps.begin() <= *other.steps.rbegin() &&
                                        *other.steps.begin() <= *one.steps.rbegin()
                                  : from(one) <= to(other) && from(other) <= to(one);
      if (!meet) continue;
      const bool apart =
          left.offset + left.bytes <= right.offset || right.offset + right.bytes <= left.offset;
      CHECK(apart);
    }
  }
}

/// What a layout with forks gives for x.
Tensor run_forked(const detail::ForkedLayout& forked, const Tensor& x) {
  const Program& program = forked.layout.program;
  const Value& result = program.outputs[0];
  const Buffer& buffer = program.buffers[result.buffer];
  const Place in{x.storage(), x.storage()->data()};
  Place out;
  if (buffer.kind == BufferKind::Input) {
    out = in;
  } else if (buffer.kind == BufferKind::Constant) {
    out = {buffer.constant, buffer.constant->data()};
  } else {
    out.storage = IntrusivePtr<Storage>(new Storage(buffer.bytes, Device::cpu()));
    out.begin = out.storage->data();
  }
  forked.run(forked.layout.take(), {&in, 1}, {&out, 1});
  return detail::tensor_of(result, out.storage, out.begin);
}

TEST_CASE("forks: random networks give the same side by side") {
  std::size_t side_by_side = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Generator generator(seed + 500);
    const Tensor example = randn({kRows, kColumns}, generator);
    const Program program = [&] {
      const Recording recording(example);
      const Tensor y = test::random_network(example, seed);
      Program made = detail::make_program(recording, {&example, 1}, {&y, 1});
      detail::drop_unused(made);
      detail::share_equal_steps(made);
      detail::reuse_inputs(made);
      return made;
    }();
    // As many lanes as there can be.
    const StepTimes times = same_times(program.steps.size(), 1.0, 1.0 + 1e-3);
    std::vector<Fork> forks = detail::best_forks(program, times, 4);
    check_forks(program, forks);
    for (const Fork& fork : forks) side_by_side += fork.lanes.size() > 1 ? 1U : 0U;
    const detail::ForkedLayout forked(program, std::move(forks));
    check_memory(forked.layout.program, forked.forks);
    test::with_threads({1, 2, 4}, [&] {
      const Tensor x = randn({kRows, kColumns}, generator);
      const Tensor wanted = test::random_network(x, seed);
      const Tensor got = run_forked(forked, x);
      CHECK(got.equal(wanted));
      CHECK(got.strides() == wanted.strides());
    });
  }
  CHECK(side_by_side > 200);
}

/// Microseconds as Checked counts them.
std::atomic<int> counted_time = 0;
double counted_seconds() { return 1e-6 * counted_time; }

/// x + 1, or what follows from numbers above a bound. Takes longer if several threads share it.
struct Checked : Op<Checked> {
  static constexpr std::string_view kName = "checked";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    counted_time += get_num_threads() > 1 ? 40 : 5;
    const auto* from = in[0].data<float>();
    auto* to = static_cast<float*>(out[0].data_ptr());
    for (std::int64_t i = 0; i < in[0].numel(); ++i) {
      if (from[i] > 50.0F) throw ArgumentError("checked: x: too large");
      to[i] = from[i] + 1.0F;
    }
    return "scalar";
  }
};

Tensor checked(const Tensor& x) { return quanta::run(Checked{}, x); }

Tensor branches(const Tensor& x) {
  Tensor sum = x;
  std::vector<Tensor> ends;
  for (int branch = 0; branch < 3; ++branch) {
    ends.push_back(checked(checked(branch == 0 ? x : x.slice(1, 0, kColumns - branch))));
  }
  for (const Tensor& end : ends) sum = combined(sum.slice(1, 0, end.size(1)), end, 1.0F);
  return sum;
}

Tensor chain(const Tensor& x) { return checked(checked(checked(x))); }

template <typename Network>
ReplayPlan plan_of(const Network& network, const Tensor& x) {
  const Recording recording(x);
  return {recording, x, network(x)};
}

/// A layout, and what runs it by the counted time.
struct Counted {
  Tensor x;
  detail::Layout layout;
  std::unique_ptr<const detail::PlanForks> forks;

  template <typename Network>
  Counted(const Network& network, const Tensor& given, int threads) : x(given) {
    const Recording recording(x);
    const Tensor y = network(x);
    layout.program = detail::make_program(recording, {&x, 1}, {&y, 1});
    detail::reuse_inputs(layout.program);
    layout.arena_bytes = detail::place_buffers(layout.program);
    forks = std::make_unique<const detail::PlanForks>(layout, threads, &counted_seconds);
  }
  Tensor run() const {
    const Place in{x.storage(), x.storage()->data()};
    const Value& result = layout.program.outputs[0];
    Place out;
    out.storage = IntrusivePtr<Storage>(
        new Storage(layout.program.buffers[result.buffer].bytes, Device::cpu()));
    out.begin = out.storage->data();
    forks->run({&in, 1}, {&out, 1});
    return detail::tensor_of(result, out.storage, out.begin);
  }
  /// So many times; gives what runs take by then.
  std::string after(int runs, const Tensor& wanted) const {
    for (int run_number = 0; run_number < runs; ++run_number) CHECK(run().equal(wanted));
    return forks->to_string();
  }
};

// Two runs, two and two that are timed, one that chooses, and six pairs.
constexpr int kRunsOfTrial = 19;

TEST_CASE("forks: plans come to run branches side by side and short steps on one thread") {
  const Tensor x = test::random_tensor({1, kColumns});
  test::with_threads({2, 4}, [&] {
    const int threads = get_num_threads();
    const Counted forked(branches, x, threads);
    CHECK(forked.after(kRunsOfTrial - 1, branches(x)).empty());
    const std::string side_by_side =
        fmt::format("{} threads: steps 1 to 6 side by side in 3 lanes\n", threads);
    CHECK(forked.after(1, branches(x)) == side_by_side);
    // The second time, too.
    CHECK(forked.after(1100, branches(x)) == side_by_side);
    const Counted alone(chain, x, threads);
    CHECK(alone.after(kRunsOfTrial, chain(x)) ==
          fmt::format("{} threads: steps 1 to 3 by one of them\n", threads));
    // Nothing in it works by rows.
    const auto other = [](const Tensor& in) { return combined(combined(in, in, 0.5F), in, 0.5F); };
    const Counted none(other, x, threads);
    CHECK(none.after(50, other(x)).empty());
  });
}

/// Does not work by rows.
struct Other : Op<Other> {
  static constexpr std::string_view kName = "other";
  static constexpr ArgumentCount kArguments{1};
  void infer(const Arguments&, Results&) const override {}
  std::string_view cpu(const Arguments&, std::span<const Tensor>) const override { return {}; }
};

TEST_CASE("forks: only steps that work by rows may be in forks, short ones or beside others") {
  const auto which = [](const std::vector<Uses>& steps, const std::vector<bool>& by_rows,
                        double seconds) {
    Program program = program_of(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (by_rows[i]) {
        program.steps[i].operation = std::make_shared<Checked>();
      } else {
        program.steps[i].operation = std::make_shared<Other>();
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

TEST_CASE("forks: what a lane throws reaches the caller, and the next run is as ever") {
  const Tensor x = Tensor::full({kRows, kColumns}, 1.0);
  const Program program = [&] {
    const Recording recording(x);
    const Tensor y = branches(x);
    return detail::make_program(recording, {&x, 1}, {&y, 1});
  }();
  const detail::ForkedLayout forked(
      program, detail::best_forks(program, same_times(program.steps.size(), 1.0, 1.001), 3));
  REQUIRE(!forked.forks.empty());
  const Tensor wrong = Tensor::full({kRows, kColumns}, 100.0);
  const ReplayPlan plan = plan_of(branches, x);
  test::with_threads({1, 2, 3}, [&] {
    for (int run = 0; run < 30; ++run) {
      CHECK_THROWS_AS(run_forked(forked, wrong), ArgumentError);
      CHECK(test::same_bits(run_forked(forked, x), branches(x)));
      CHECK_THROWS_AS(plan.run(wrong), ArgumentError);
      CHECK(test::same_bits(plan.run(x), branches(x)));
    }
  });
}

TEST_CASE("forks: many callers with threads of their own find out what is shorter") {
  const Tensor x = test::random_tensor({1, kColumns});
  const Tensor wanted = branches(x);
  const ReplayPlan plan = plan_of(branches, x);
  std::atomic<int> unequal = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      set_num_threads(1 + caller % 4);
      for (int run = 0; run < 60; ++run) unequal += plan.run(x).equal(wanted) ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(unequal == 0);
}

TEST_CASE("forks: where there is no memory for them, runs go on without") {
  constexpr std::int64_t kMany = 40000;
  const auto network = [](const Tensor& in) {
    const Tensor part = checked(in).slice(1, 0, 10);
    return combined(part, part, 0.5F);
  };
  const Tensor x = Tensor::ones({1, kMany});
  const Tensor wanted = network(x);
  const test::Threads guard(2);
  const Counted plan(network, x, 2);
  CHECK(plan.after(1, wanted).empty());
  {
    const AllocationLimit limit(kMany);  // of bytes: less than the first step's result
    CHECK(plan.after(30, wanted).empty());
  }
  CHECK(plan.after(1100, wanted) == "2 threads: steps 1 to 1 by one of them\n");
}

TEST_CASE("forks: a profiler sees the steps one after the other") {
  const Tensor x = test::random_tensor({1, kColumns});
  const ReplayPlan plan = plan_of(branches, x);
  const test::Threads guard(2);
  for (int run = 0; run < 30; ++run) {
    Profiler profiler;
    CHECK(plan.run(x).equal(branches(x)));
    profiler.stop();
    // Of the plan and of the network.
    CHECK(std::ranges::count(profiler.events(), "checked", &ProfileEvent::name) == 12);
  }
}

}  // namespace
}  // namespace quanta::replay
