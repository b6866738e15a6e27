// Plans whose rows are shared by the threads of a run.

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/detail/row_program.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/replay_plan.h"
#include "support/compare.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta::replay {
namespace {

std::mutex seen_mutex;
std::multiset<std::int64_t> seen_rows;

std::multiset<std::int64_t> take_seen_rows() {
  const std::lock_guard lock(seen_mutex);
  return std::exchange(seen_rows, {});
}

/// x + 1, or what follows from the numbers below a bound; notes how many rows it was called with.
struct Increase : Op<Increase> {
  static constexpr std::string_view kName = "increase";
  static constexpr ArgumentCount kArguments{1};
  bool by_rows = true;
  double bound = 1e9;

  explicit Increase(bool works_by_row, double most = 1e9) : by_rows(works_by_row), bound(most) {}
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    {
      const std::lock_guard lock(seen_mutex);
      seen_rows.insert(in[0].size(0));
    }
    const auto* from = in[0].data<float>();
    auto* to = static_cast<float*>(out[0].data_ptr());
    for (std::int64_t i = 0; i < in[0].numel(); ++i) {
      if (static_cast<double>(from[i]) > bound) throw ArgumentError("increase: x: too large");
      to[i] = from[i] + 1.0F;
    }
    return "scalar";
  }
  bool works_by_rows() const noexcept override { return by_rows; }
  /// So much that threads share the rows if they can.
  OpWork work(const Arguments& in, std::span<const Tensor>) const override {
    return {.multiply_adds = in[0].size(0) * (std::int64_t{1} << 26), .bytes = 0};
  }
};

/// a + b, both of one size.
struct Sum : Op<Sum> {
  static constexpr std::string_view kName = "sum_of_two";
  static constexpr ArgumentCount kArguments{2};
  static constexpr bool kWorksByRows = true;
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* a = in[0].data<float>();
    const auto* b = in[1].data<float>();
    auto* to = static_cast<float*>(out[0].data_ptr());
    for (std::int64_t i = 0; i < out[0].numel(); ++i) to[i] = a[i] + b[i];
    return "scalar";
  }
};

Tensor increase(const Tensor& x, bool by_rows = true) { return quanta::run(Increase(by_rows), x); }

template <typename Function>
ReplayPlan plan_of(const Function& function, const Tensor& x) {
  const Recording recording(x);
  return {recording, x, function(x)};
}

TEST_CASE("replay: threads take rows through all steps where each step works by rows") {
  const Tensor x = test::random_tensor({12, 5});
  const auto twice = [](const Tensor& in) {
    return quanta::run(Sum{}, increase(increase(in)), in);
  };
  const ReplayPlan plan = plan_of(twice, x);
  CHECK(plan.info().rows == 12);
  const Tensor wanted = twice(x);
  // What the steps were called with, and how often: each row once by each of the two.
  struct Shared {
    int threads;
    std::int64_t rows;
  };
  for (const Shared& shared : std::vector<Shared>{
           {1, 12}, {2, 3}, {3, 2}, {4, 1}, {6, 1}, {12, 1}, {7, 1}, {5, 12}, {40, 12}}) {
    CAPTURE(shared.threads);
    const test::Threads guard(shared.threads);
    for (int run = 0; run < 3; ++run) {
      take_seen_rows();
      CHECK(test::same_bits(plan.run(x), wanted));
      const std::multiset<std::int64_t> seen = take_seen_rows();
      CHECK(seen.count(shared.rows) == seen.size());
      CHECK(seen.size() == static_cast<std::size_t>(2 * 12 / shared.rows));
    }
  }
}

/// Much to do for each row, and weights of so many bytes.
struct Layer : Op<Layer> {
  static constexpr std::string_view kName = "layer";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  std::int64_t multiply_adds, weight_bytes;

  Layer(std::int64_t of_row, std::int64_t bytes) : multiply_adds(of_row), weight_bytes(bytes) {}
  void infer(const Arguments& in, Results& out) const override {
    out.add_like(in[0], in[0].sizes(), in[0].strides());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    out[0].copy_(in[0]);
    return "copy";
  }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return {.multiply_adds = in[0].size(0) * multiply_adds,
            .bytes = static_cast<std::int64_t>(in[0].nbytes() + out[0].nbytes()) + weight_bytes};
  }
};

constexpr std::int64_t kMuch = 1'000'000'000;

TEST_CASE("replay: rows are shared where that is worth it") {
  const Tensor x = test::random_tensor({8, 3});
  const auto at_a_time = [&](std::int64_t of_row, std::int64_t weight_bytes, int threads) {
    const Recording recording(x);
    const std::vector<Tensor> inputs{x};
    const std::vector<Tensor> outputs{quanta::run(Layer(of_row, weight_bytes), x)};
    const detail::Program program = detail::make_program(recording, inputs, outputs);
    return detail::rows_at_a_time(detail::row_work(program), threads);
  };
  CHECK(at_a_time(kMuch, 0, 2) == 2);
  CHECK(at_a_time(kMuch, 0, 3) == 1);  // 3, 3 and 2 rows
  CHECK(at_a_time(kMuch, 0, 5) == 0);  // two threads would have nothing to do for half of the time
  CHECK(at_a_time(kMuch, 0, 4) == 1);
  CHECK(at_a_time(kMuch, 0, 8) == 1);
  CHECK(at_a_time(kMuch, 0, 9) == 0);
  // A thread has something to do.
  CHECK(at_a_time(40'000'000, 0, 2) == 2);
  CHECK(at_a_time(20'000'000, 0, 2) == 4);
  CHECK(at_a_time(10'000'000, 0, 2) == 0);
  // A weight that is read once more is used for long enough.
  CHECK(at_a_time(kMuch, 20'000'000, 2) == 2);
  CHECK(at_a_time(kMuch, 40'000'000, 2) == 4);
  CHECK(at_a_time(kMuch, 100'000'000, 2) == 0);
}

TEST_CASE("replay: rows of any order in memory, and several results") {
  const Tensor x = test::random_tensor({6, 3, 4, 5}).contiguous(MemoryFormat::ChannelsLast);
  const Tensor y = test::random_tensor({6, 3, 4, 5}, 2).contiguous(MemoryFormat::ChannelsLast);
  const auto codes = [](const Tensor& in) {
    return QTensor(quantize_per_tensor(in, 0.05, 100, DType::QUInt8));
  };
  const auto network = [&](const Tensor& a, const Tensor& b) {
    const QTensor left = codes(quanta::run(Layer(kMuch, 0), a));
    const QTensor right = codes(b);
    const QTensor sum = quantized::add(left, right, 0.1, 90);
    const QTensor both = quantized::cat(std::vector<QTensor>{sum, left}, 1);
    return std::vector<Tensor>{dequantize(sum), dequantize(both)};
  };
  const std::vector<Tensor> inputs{x, y};
  const ReplayPlan plan = [&] {
    const Recording recording(inputs);
    return ReplayPlan(recording, inputs, network(x, y));
  }();
  CHECK(plan.info().rows == 6);
  const std::vector<std::vector<Tensor>> calls{
      inputs, {y, x}, {x.contiguous(), y}, {x.transpose(2, 3).clone().transpose(2, 3), y}};
  test::with_threads({1, 2, 3, 6}, [&] {
    for (const std::vector<Tensor>& call : calls) {
      const std::vector<Tensor> wanted = network(call[0], call[1]);
      const std::vector<Tensor> got = plan.run(call);
      for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(test::same_bits(got[i], wanted[i]));
    }
  });
}

TEST_CASE("replay: large results of a row may begin between cache lines") {
  constexpr std::int64_t kElements = 8'388'611;  // 32 MiB of floats and 12 bytes
  const Tensor bytes = Tensor::full({2, kElements}, 7.0, DType::UInt8);
  const Tensor x = QTensor::from_int_repr(bytes, Quantizer::per_tensor(0.5, 3));
  const auto function = [](const Tensor& in) {
    return dequantize(QTensor(quanta::run(Layer(kMuch, 0), in)));
  };
  const ReplayPlan plan = plan_of(function, x);
  CHECK(plan.info().rows == 2);
  const test::Threads guard(2);
  CHECK(plan.run(x).equal(Tensor::full({2, kElements}, 2.0)));
}

TEST_CASE("replay: steps that may mix rows are run for all of them at once") {
  const Tensor x = test::random_tensor({6, 5});
  const Tensor rows = test::random_tensor({6, 5}, 2);
  const Tensor row = test::random_tensor({1, 5}, 3);
  const auto check = [&](std::int64_t wanted, const auto& function) {
    const ReplayPlan plan = plan_of(function, x);
    CHECK(plan.info().rows == wanted);
    test::with_threads({1, 2, 3},
                       [&] { CHECK(test::same_bits(plan.run(x), Tensor(function(x)))); });
  };
  check(6, [](const Tensor& in) { return increase(in); });
  check(0, [](const Tensor& in) { return increase(increase(in, false)); });
  check(0, [](const Tensor& in) { return increase(in, false); });
  // A constant with a row for each row of x.
  check(0, [&](const Tensor& in) { return quanta::run(Sum{}, increase(in), rows); });
  // Other rows than those of x.
  check(0, [](const Tensor& in) { return increase(in.view({5, 6})).view({6, 5}); });
  check(0, [](const Tensor& in) { return increase(in).t(); });
  check(0, [](const Tensor& in) { return increase(in).view({30}); });
  check(0, [](const Tensor& in) { return cat(std::vector<Tensor>{increase(in), in}, 0); });
  check(6, [](const Tensor& in) { return cat(std::vector<Tensor>{increase(in), in}, 1); });
  // A row of these is dense, where all of them are not.
  check(0, [](const Tensor& in) { return increase(in.narrow(1, 1, 3).contiguous()); });
  // Nothing that is calculated.
  check(0, [](const Tensor& in) { return in; });
  // One dimension may be a layer's row.
  const Tensor line = test::random_tensor({6});
  CHECK(plan_of([](const Tensor& in) { return increase(in); }, line).info().rows == 0);
  // One row is not divided.
  const ReplayPlan one = plan_of([](const Tensor& in) { return increase(in); }, row);
  CHECK(one.info().rows == 0);
}

TEST_CASE("replay: what a row throws reaches the caller, and the next run is as ever") {
  const Tensor x = test::random_tensor({8, 5});
  Tensor wrong = x.clone();
  wrong.narrow(0, 6, 1).fill_(100.0);
  const auto function = [](const Tensor& in) { return quanta::run(Increase(true, 50.0), in); };
  const ReplayPlan plan = plan_of(function, x);
  CHECK(plan.info().rows == 8);
  test::with_threads({1, 2, 4}, [&] {
    for (int run = 0; run < 3; ++run) {
      CHECK_THROWS_AS(plan.run(wrong), ArgumentError);
      CHECK(test::same_bits(plan.run(x), function(x)));
    }
  });
}

TEST_CASE("replay: many callers with threads of their own share a plan by rows") {
  const Tensor x = test::random_tensor({8, 50});
  const auto function = [](const Tensor& in) { return increase(increase(in)); };
  const ReplayPlan plan = plan_of(function, x);
  const Tensor wanted = function(x);
  std::atomic<int> unequal = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      set_num_threads(1 + caller % 4);
      for (int run = 0; run < 50; ++run) unequal += plan.run(x).equal(wanted) ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(unequal == 0);
}

TEST_CASE("replay: a profiler sees each step once, whole") {
  const Tensor x = test::random_tensor({8, 5});
  const ReplayPlan plan = plan_of([](const Tensor& in) { return increase(increase(in)); }, x);
  const test::Threads guard(2);
  take_seen_rows();
  Profiler profiler;
  static_cast<void>(plan.run(x));
  profiler.stop();
  CHECK(take_seen_rows() == std::multiset<std::int64_t>{8, 8});
}

}  // namespace
}  // namespace quanta::replay
