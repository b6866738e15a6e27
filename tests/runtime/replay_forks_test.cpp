// Plans whose steps run side by side.

#include "quanta/runtime/detail/plan_forks.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "plan_support.h"
#include "quanta/runtime/allocator.h"
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

using detail::Fork;
using detail::Program;
using test::combined;
using test::kColumns;
using test::kRows;

/// As many lanes as there can be.
std::vector<Fork> widest_forks(const Program& program) {
  const std::size_t steps = program.steps.size();
  return detail::best_forks(
      program, {std::vector<double>(steps, 1.0), std::vector<double>(steps, 1.001)}, 8);
}

/// What a layout with forks gives for x.
Tensor run_forked(const detail::ForkedLayout& forked, const Tensor& x) {
  return test::result_of(forked.layout.program, x, [&](const auto& in, const auto& out) {
    forked.run(forked.layout.take(), in, out);
  });
}

TEST_CASE("forks: random networks give the same side by side") {
  std::size_t side_by_side = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Generator generator(seed + 500);
    const Tensor example = randn({kRows, kColumns}, generator);
    const Program program =
        test::program_of([&](const Tensor& x) { return test::random_network(x, seed); }, example);
    std::vector<Fork> forks = widest_forks(program);
    test::check_forks(program, forks);
    for (const Fork& fork : forks) side_by_side += fork.lanes.size() > 1 ? 1U : 0U;
    const detail::ForkedLayout forked(program, std::move(forks));
    test::check_memory(forked.layout.program, forked.forks);
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

void add_one(const Tensor& x, const Tensor& out) {
  const auto* from = x.data<float>();
  auto* to = static_cast<float*>(out.data_ptr());
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] + 1.0F;
}

/// Microseconds of this thread, as Checked counts them.
thread_local int counted_time = 0;
double counted_seconds() { return 1e-6 * counted_time; }

/// x + 1. Takes longer, as it counts, if several threads share it.
struct Checked : Op<Checked> {
  static constexpr std::string_view kName = "checked";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    counted_time += get_num_threads() > 1 ? 40 : 5;
    add_one(in[0], out[0]);
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

/// A layout, and what runs it by the counted time.
struct Counted {
  Tensor x;
  detail::Layout layout;
  std::unique_ptr<const detail::PlanForks> forks;

  template <typename Network>
  Counted(const Network& network, const Tensor& given, int threads) : x(given) {
    layout.program = test::program_of(network, x);
    layout.arena_bytes = detail::place_buffers(layout.program);
    forks = std::make_unique<const detail::PlanForks>(layout, threads, &counted_seconds);
  }
  Tensor run() const {
    return test::result_of(layout.program, x,
                           [&](const auto& in, const auto& out) { forks->run(in, out); });
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

/// Whether it comes to pass before the time that a test is given to go on without.
template <typename Condition>
bool comes(const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(2);
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// What two lanes know of each other.
struct Meeting {
  std::atomic<bool> throws{false};
  std::atomic<int> here{0};
  std::atomic<bool> has_thrown{false};
  std::atomic<bool> has_written{false};
};

/// x + 1, once both lanes are here. The first one may throw then, the other goes on after that.
struct Meet : Op<Meet> {
  static constexpr std::string_view kName = "meet";
  static constexpr ArgumentCount kArguments{1};
  Meeting* meeting;
  bool is_first;

  Meet(Meeting& with, bool first) : meeting(&with), is_first(first) {}
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (meeting->throws) {
      ++meeting->here;
      comes([&] { return meeting->here == 2; });
      if (is_first) {
        meeting->has_thrown = true;
        throw ArgumentError("meet: x: expected another one");
      }
      comes([&] { return meeting->has_thrown.load(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    add_one(in[0], out[0]);
    meeting->has_written = true;
    return "scalar";
  }
};

TEST_CASE("forks: what a lane throws reaches the caller when the other lanes are done") {
  const Tensor x = Tensor::full({kRows, kColumns}, 1.0);
  Meeting meeting;
  const auto network = [&](const Tensor& in) {
    const Tensor part = in.slice(1, 0, kColumns - 1);
    return combined(quanta::run(Meet(meeting, true), in).slice(1, 0, kColumns - 1),
                    quanta::run(Meet(meeting, false), part), 1.0F);
  };
  const Tensor wanted = network(x);
  const Program program = test::program_of(network, x);
  const detail::ForkedLayout forked(program, widest_forks(program));
  REQUIRE(forked.forks.size() == 1);
  REQUIRE(forked.forks[0].lanes.size() == 2);
  const test::Threads guard(2);
  for (int run = 0; run < 10; ++run) {
    meeting.throws = true;
    meeting.here = 0;
    meeting.has_thrown = meeting.has_written = false;
    CHECK_THROWS_AS(run_forked(forked, x), ArgumentError);
    // A lane that has begun has ended.
    CHECK(meeting.has_written == (meeting.here == 2));
    meeting.throws = false;
    CHECK(test::same_bits(run_forked(forked, x), wanted));
  }
}

TEST_CASE("forks: many callers find out together what is shorter") {
  const Tensor x = test::random_tensor({1, kColumns});
  const Tensor wanted = branches(x);
  const Counted plan(branches, x, 2);
  std::atomic<int> unequal = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      set_num_threads(2);
      for (int run = 0; run < 600; ++run) unequal += plan.run().equal(wanted) ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(unequal == 0);
  CHECK(plan.forks->to_string() == "2 threads: steps 1 to 6 side by side in 3 lanes\n");
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

/// x + 1. Takes much longer if several threads share it, and counts how often one did it alone.
struct Slow : Op<Slow> {
  static constexpr std::string_view kName = "slow";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  std::atomic<int>* alone;

  explicit Slow(std::atomic<int>& count) : alone(&count) {}
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (get_num_threads() == 1)
      ++*alone;
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    add_one(in[0], out[0]);
    return "scalar";
  }
};

TEST_CASE("forks: a profiler sees the steps one after the other") {
  const Tensor x = test::random_tensor({1, kColumns});
  std::atomic<int> alone = 0;
  const auto network = [&](const Tensor& in) {
    const auto slow = [&](const Tensor& value) { return quanta::run(Slow(alone), value); };
    const Tensor part = in.slice(1, 0, kColumns - 1);
    return combined(slow(slow(in)).slice(1, 0, kColumns - 1), slow(slow(part)), 1.0F);
  };
  const ReplayPlan plan = [&] {
    const Recording recording(x);
    return ReplayPlan(recording, x, network(x));
  }();
  const test::Threads guard(2);
  const Tensor wanted = plan.run(x);
  comes([&] {
    CHECK(plan.run(x).equal(wanted));
    return plan.to_string().find("2 threads: steps") != std::string::npos;
  });
  alone = 0;
  CHECK(plan.run(x).equal(wanted));
  const int steps = static_cast<int>(plan.info().steps) - 1;
  CHECK(alone == steps);
  alone = 0;
  Profiler profiler;
  CHECK(plan.run(x).equal(wanted));
  profiler.stop();
  CHECK(alone == 0);
  CHECK(std::ranges::count(profiler.events(), "slow", &ProfileEvent::name) == steps);
}

}  // namespace
}  // namespace quanta::replay
