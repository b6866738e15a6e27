#include "quanta/ops/rnn.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/rnn/cpu_kernels.h"
#include "quanta/runtime/detail/gate_math.h"
#include "quanta/runtime/error.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::for_each_target;
using Doubles = std::vector<double>;

constexpr RecurrentKind kKinds[] = {RecurrentKind::RnnTanh, RecurrentKind::RnnRelu,
                                    RecurrentKind::Lstm, RecurrentKind::Gru};

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Units in the last place between `got` and `want`; only for results that are normal numbers.
double ulps(float got, double want) {
  const float size = std::abs(static_cast<float>(want));
  const float unit = std::nextafter(size, std::numeric_limits<float>::infinity()) - size;
  return std::abs(static_cast<double>(got) - want) / static_cast<double>(unit);
}

// Finite floats of all sizes and both signs, and the neighbourhood of where tanh changes its form.
std::vector<float> all_sizes() {
  std::vector<float> values;
  constexpr std::uint32_t kStep = 60013;
  for (std::uint64_t bits = 0; bits < 0x1'0000'0000U; bits += kStep) {
    const auto pattern = static_cast<std::uint32_t>(bits);
    float value = 0.0F;
    std::memcpy(&value, &pattern, sizeof value);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (int i = -20000; i <= 20000; ++i) values.push_back(static_cast<float>(i) * 5e-4F);
  return values;
}

void check_function(void (*row)(const float*, std::int64_t, float*), double (*exact)(double)) {
  const std::vector<float> values = all_sizes();
  std::vector<float> results(values.size());
  row(values.data(), static_cast<std::int64_t>(values.size()), results.data());
  double worst = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double want = exact(static_cast<double>(values[i]));
    if (std::abs(want) < static_cast<double>(std::numeric_limits<float>::min())) {
      CHECK(std::abs(results[i]) <= std::numeric_limits<float>::min());
    } else {
      worst = std::max(worst, ulps(results[i], want));
    }
  }
  CHECK(worst <= cpu::kGateUlps);
}

TEST_CASE("sigmoid_row and tanh_row: within the bound of units on every instruction set") {
  for_each_target([] {
    check_function(cpu::sigmoid_row, logistic);
    check_function(cpu::tanh_row, std::tanh);
  });
}

TEST_CASE("sigmoid_row and tanh_row: NaN and infinity and a signed zero") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values{infinity, -infinity, std::numeric_limits<float>::quiet_NaN(),
                                  -0.0F};
  for_each_target([&] {
    std::vector<float> results(values.size());
    cpu::sigmoid_row(values.data(), 4, results.data());
    CHECK(results[0] == 1.0F);
    CHECK(results[1] == 0.0F);
    CHECK(std::isnan(results[2]));
    CHECK(results[3] == 0.5F);
    cpu::tanh_row(values.data(), 4, results.data());
    CHECK(results[0] == 1.0F);
    CHECK(results[1] == -1.0F);
    CHECK(std::isnan(results[2]));
    CHECK((results[3] == 0.0F && std::signbit(results[3])));
  });
}

TEST_CASE("gate functions: the scalar arithmetic gives the floats of every instruction set") {
  const std::vector<float> values = all_sizes();
  const auto count = static_cast<std::int64_t>(values.size());
  // Gates and states of one row: all floats in other orders, some of them large.
  const auto moved = [&](std::int64_t places) {
    std::vector<float> row = values;
    std::rotate(row.begin(), row.begin() + places, row.end());
    return row;
  };
  std::vector<float> x;
  for (std::int64_t gate = 0; gate < 4; ++gate) {
    const std::vector<float> row = moved(gate * 7919);
    x.insert(x.end(), row.begin(), row.end());
  }
  std::vector<float> h(x.size());
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = static_cast<float>(i % 17) - 8.0F;
  const std::vector<float> before = moved(31);
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for_each_target([&] {
    std::vector<float> sigmoids(values.size());
    std::vector<float> tanhs(values.size());
    cpu::sigmoid_row(values.data(), count, sigmoids.data());
    cpu::tanh_row(values.data(), count, tanhs.data());
    std::vector<float> cells = before;
    std::vector<float> lstm(values.size());
    std::vector<float> gru = before;
    cpu::lstm_gates({x.data(), h.data(), cells.data(), count}, lstm.data());
    cpu::gru_gates({x.data(), h.data(), gru.data(), count});
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto input = [&](std::size_t gate) { return x[gate * values.size() + i]; };
      const auto hidden = [&](std::size_t gate) { return h[gate * values.size() + i]; };
      const auto sum = [&](std::size_t gate) { return input(gate) + hidden(gate); };
      const math::LstmUnit unit = math::lstm_unit(sum(0), sum(1), sum(2), sum(3), before[i]);
      const bool is_right =
          same(sigmoids[i], math::value_of(math::gate_sigmoid(values[i]))) &&
          same(tanhs[i], math::value_of(math::gate_tanh(values[i]))) && same(cells[i], unit.cell) &&
          same(lstm[i], unit.hidden) &&
          same(gru[i], math::gru_unit(sum(0), sum(1), input(2), hidden(2), before[i]));
      wrong += is_right ? 0 : 1;
    }
    CHECK(wrong == 0);
  });
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(math::value_of(math::gate_sigmoid(nan))));
  CHECK(std::isnan(math::value_of(math::gate_tanh(nan))));
}

struct Problem {
  RecurrentKind kind = RecurrentKind::Lstm;
  std::int64_t hidden = 5;
  std::int64_t width = 5;  // of h: less than hidden with a projection
  std::vector<std::int64_t> batch_sizes{};
  StepOrder order = StepOrder::Forward;
  Tensor gates{}, weight{}, bias{}, projection{}, h{}, c{};

  std::int64_t rows() const {
    return std::accumulate(batch_sizes.begin(), batch_sizes.end(), std::int64_t{0});
  }
  RecurrentResult run() const {
    const auto hidden_product = float_hidden_product(weight, bias);
    const auto projected = projection.defined() ? float_hidden_product(projection, {}) : nullptr;
    return recurrent_steps(
        {kind, hidden, batch_sizes, order, hidden_product.get(), projected.get()}, gates, h, c);
  }
};

Problem random_problem(RecurrentKind kind, StepOrder order, bool projects, Generator& generator) {
  Problem problem;
  problem.kind = kind;
  problem.order = order;
  problem.hidden = generator.integer(2, 37);
  problem.width = projects ? generator.integer(1, problem.hidden - 1) : problem.hidden;
  std::int64_t size = generator.integer(1, 6);
  for (std::int64_t step = generator.integer(1, 7); step > 0; --step) {
    problem.batch_sizes.push_back(size);
    size = generator.integer(1, size);
  }
  const std::int64_t gates = gate_count(kind) * problem.hidden;
  const std::int64_t batch = problem.batch_sizes[0];
  problem.gates = randn({problem.rows(), gates}, generator);
  problem.weight = randn({gates, problem.width}, generator);
  problem.bias = randn({gates}, generator);
  if (projects) problem.projection = randn({problem.width, problem.hidden}, generator);
  problem.h = randn({batch, problem.width}, generator);
  if (kind == RecurrentKind::Lstm) problem.c = randn({batch, problem.hidden}, generator);
  return problem;
}

Doubles doubles(const Tensor& x) {
  const std::vector<float> values = x.to_float_vector();
  return {values.begin(), values.end()};
}

// weight [n, k] times x, plus bias.
Doubles product(const Tensor& weight, const Doubles& x, const Doubles& bias) {
  const Doubles w = doubles(weight);
  Doubles y(static_cast<std::size_t>(weight.sizes()[0]), 0.0);
  for (std::size_t n = 0; n < y.size(); ++n) {
    y[n] = bias.empty() ? 0.0 : bias[n];
    for (std::size_t k = 0; k < x.size(); ++k) y[n] += w[n * x.size() + k] * x[k];
  }
  return y;
}

// One step of one sequence, by the book.
void naive_step(const Problem& problem, const Doubles& x, Doubles& h, Doubles& c) {
  const auto n = static_cast<std::size_t>(problem.hidden);
  const Doubles hidden = product(problem.weight, h, doubles(problem.bias));
  const auto sum = [&](std::size_t gate, std::size_t i) {
    return x[gate * n + i] + hidden[gate * n + i];
  };
  Doubles next(n);
  for (std::size_t i = 0; i < n; ++i) {
    switch (problem.kind) {
      case RecurrentKind::RnnTanh:
        next[i] = std::tanh(sum(0, i));
        break;
      case RecurrentKind::RnnRelu:
        next[i] = std::max(0.0, sum(0, i));
        break;
      case RecurrentKind::Lstm:
        c[i] = logistic(sum(1, i)) * c[i] + logistic(sum(0, i)) * std::tanh(sum(2, i));
        next[i] = logistic(sum(3, i)) * std::tanh(c[i]);
        break;
      case RecurrentKind::Gru: {
        const double candidate = std::tanh(x[2 * n + i] + logistic(sum(0, i)) * hidden[2 * n + i]);
        const double update = logistic(sum(1, i));
        next[i] = (1.0 - update) * candidate + update * h[i];
        break;
      }
    }
  }
  h = problem.projection.defined() ? product(problem.projection, next, {}) : next;
}

// A sequence after the other, each over the steps that it has.
void check_against_naive(const Problem& problem) {
  const RecurrentResult result = problem.run();
  const auto near = [](const Tensor& got, std::int64_t row, const Doubles& want) {
    const std::vector<float> values = got.select(0, row).to_float_vector();
    REQUIRE(values.size() == want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      CHECK(static_cast<double>(values[i]) == doctest::Approx(want[i]).epsilon(2e-4));
    }
  };
  for (std::int64_t sequence = 0; sequence < problem.batch_sizes[0]; ++sequence) {
    Doubles h = doubles(problem.h.select(0, sequence));
    Doubles c = problem.c.defined() ? doubles(problem.c.select(0, sequence)) : Doubles{};
    std::vector<std::int64_t> rows;
    std::int64_t first = 0;
    for (const std::int64_t size : problem.batch_sizes) {
      if (sequence < size) rows.push_back(first + sequence);
      first += size;
    }
    if (problem.order == StepOrder::Reverse) std::reverse(rows.begin(), rows.end());
    for (const std::int64_t row : rows) {
      naive_step(problem, doubles(problem.gates.select(0, row)), h, c);
      near(result.output, row, h);
    }
    near(result.h_n, sequence, h);
    if (problem.c.defined()) near(result.c_n, sequence, c);
  }
}

TEST_CASE("recurrent_steps: as one sequence after the other in double") {
  Generator generator(11);
  for (const RecurrentKind kind : kKinds) {
    for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
      for (int round = 0; round < 6; ++round) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(round);
        check_against_naive(random_problem(kind, order, false, generator));
      }
    }
  }
}

TEST_CASE("recurrent_steps: projections as one sequence after the other in double") {
  Generator generator(12);
  for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
    for (int round = 0; round < 6; ++round) {
      check_against_naive(random_problem(RecurrentKind::Lstm, order, true, generator));
    }
  }
}

TEST_CASE("recurrent_steps: a product of other sizes is refused before it runs") {
  Generator generator(3);
  const std::vector<std::int64_t> batch_sizes{2, 2};
  const Tensor gates = randn({4, 16}, generator), h = randn({2, 4}, generator);
  const auto product = [&](std::int64_t out, std::int64_t in) {
    return float_hidden_product(randn({out, in}, generator), Tensor());
  };
  const auto fitting = product(16, 4), wide = product(16, 64), tall = product(64, 4);
  RecurrentSteps steps{RecurrentKind::Lstm, 4, batch_sizes, StepOrder::Forward, fitting.get()};
  CHECK(recurrent_steps(steps, gates, h, h).output.sizes() == Dims{4, 4});
  for (const auto& other : {wide, tall}) {
    steps.hidden = other.get();
    CHECK_THROWS_WITH_AS(recurrent_steps(steps, gates, h, h),
                         doctest::Contains("recurrent_steps: hidden: expected a product from 4 to "
                                           "16 features, got one from"),
                         ArgumentError);
  }
  // A projection to 3 features: the states have 3 then.
  const Tensor narrow = randn({2, 3}, generator);
  const auto from_narrow = product(16, 3), projection = product(3, 4), wrong = product(300, 4);
  steps.hidden = from_narrow.get();
  steps.projection = projection.get();
  CHECK(recurrent_steps(steps, gates, narrow, h).output.sizes() == Dims{4, 3});
  steps.projection = wrong.get();
  CHECK_THROWS_WITH_AS(recurrent_steps(steps, gates, narrow, h),
                       "recurrent_steps: projection: expected a product from 4 to 3 features, got "
                       "one from 4 to 300",
                       ArgumentError);
}

// Gates that do not depend on oneDNN's order of sums.
class Halves final : public HiddenProduct {
 public:
  explicit Halves(std::int64_t hidden, std::int64_t gates) : hidden_(hidden), gates_(gates) {}
  std::int64_t in_features() const noexcept override { return hidden_; }
  std::int64_t out_features() const noexcept override { return gates_; }
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    for (std::int64_t i = 0; i < rows * gates_; ++i) {
      out[i] = 0.5F * h[i / gates_ * hidden_ + i % hidden_];
    }
  }

 private:
  std::int64_t hidden_, gates_;
};

TEST_CASE("recurrent_steps: the same floats on every instruction set and with any threads") {
  Generator generator(13);
  for (const RecurrentKind kind : kKinds) {
    Problem problem = random_problem(kind, StepOrder::Reverse, false, generator);
    problem.hidden = problem.width = 300;  // more rows than one thread takes
    problem.batch_sizes = {40, 17, 3};
    const std::int64_t gates = gate_count(kind) * 300;
    problem.gates = randn({60, gates}, generator);
    problem.h = randn({40, 300}, generator);
    problem.c = kind == RecurrentKind::Lstm ? randn({40, 300}, generator) : Tensor();
    const Halves halves(300, gates);
    const RecurrentSteps steps{kind, 300, problem.batch_sizes, problem.order, &halves, nullptr};
    const RecurrentResult want = recurrent_steps(steps, problem.gates, problem.h, problem.c);
    for_each_target([&] {
      for (const int threads : {1, 2, 5}) {
        const test::Threads guard(threads);
        const RecurrentResult got = recurrent_steps(steps, problem.gates, problem.h, problem.c);
        CHECK(got.output.equal(want.output));
        CHECK(got.h_n.equal(want.h_n));
      }
    });
  }
}

TEST_CASE("recurrent_steps: an input that is not contiguous and states that stay as they are") {
  Generator generator(14);
  Problem problem = random_problem(RecurrentKind::Gru, StepOrder::Forward, false, generator);
  const Tensor h = problem.h.clone();
  const RecurrentResult want = problem.run();
  problem.gates = problem.gates.t().contiguous().t();
  CHECK(problem.run().output.equal(want.output));
  CHECK(problem.h.equal(h));
}

TEST_CASE("recurrent_steps: no sequences give no rows") {
  Generator generator(15);
  Problem problem = random_problem(RecurrentKind::Lstm, StepOrder::Forward, false, generator);
  problem.batch_sizes = {0, 0};
  problem.gates = Tensor::empty({0, 4 * problem.hidden});
  problem.h = problem.c = Tensor::empty({0, problem.hidden});
  const RecurrentResult result = problem.run();
  CHECK(result.output.sizes() == Dims{0, problem.hidden});
  CHECK(result.c_n.sizes() == Dims{0, problem.hidden});
}

TEST_CASE("recurrent_steps: sizes that do not fit are refused by name") {
  Generator generator(16);
  const Problem good = random_problem(RecurrentKind::Lstm, StepOrder::Forward, false, generator);
  const auto refused = [](const Problem& problem, const char* text) {
    CHECK_THROWS_WITH_AS(problem.run(), doctest::Contains(text), ArgumentError);
  };
  Problem problem = good;
  problem.batch_sizes = {1, 2};
  refused(problem, "batch_sizes: expected numbers >= 0 that do not grow, got 2 after 1");
  problem.batch_sizes = {};
  refused(problem, "batch_sizes: expected at least one step, got none");
  problem = good;
  problem.gates = randn({good.rows() + 1, 4 * good.hidden}, generator);
  refused(problem, "input_gates: expected Float32");
  problem = good;
  problem.h = randn({good.batch_sizes[0] + 1, good.hidden}, generator);
  refused(problem, "h_0: expected Float32");
  problem = good;
  problem.c = Tensor();
  refused(problem, "c_0: expected a tensor, got an undefined one");
  problem = good;
  problem.hidden = 0;
  refused(problem, "hidden_size: expected 1..1099511627776, got 0");
  CHECK_THROWS_WITH_AS(recurrent_steps({}, good.gates, good.h, good.c),
                       doctest::Contains("hidden_size"), ArgumentError);
  CHECK_THROWS_WITH_AS(float_hidden_product(Tensor::ones({3}), {}),
                       doctest::Contains("weight: expected Float32 [N, K], got Float32 [3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(float_hidden_product(Tensor::ones({3, 2}), Tensor::ones({2})),
                       doctest::Contains("bias: expected Float32 [3], got Float32 [2]"),
                       ArgumentError);
}

}  // namespace
}  // namespace quanta
