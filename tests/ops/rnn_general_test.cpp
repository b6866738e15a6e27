// general_recurrent against ONNX's formulas, one number at a time, and against recurrent_steps.

#include "quanta/ops/rnn_general.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "quanta/ops/cat.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta {
namespace {

double applied(GateFunction function, double x, double alpha, double beta, double clip) {
  if (clip > 0.0) x = std::clamp(x, -clip, clip);
  switch (function) {
    case GateFunction::Sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case GateFunction::Tanh:
      return std::tanh(x);
    case GateFunction::Relu:
      return x > 0.0 ? x : 0.0;
    case GateFunction::Affine:
      return alpha * x + beta;
    case GateFunction::LeakyRelu:
      return x >= 0.0 ? x : alpha * x;
    case GateFunction::ThresholdedRelu:
      return x > alpha ? x : 0.0;
    case GateFunction::ScaledTanh:
      return alpha * std::tanh(beta * x);
    case GateFunction::HardSigmoid:
      return std::min(1.0, std::max(0.0, alpha * x + beta));
    case GateFunction::Elu:
      return x >= 0.0 ? x : alpha * (std::exp(x) - 1.0);
    case GateFunction::Softsign:
      return x / (1.0 + std::fabs(x));
    case GateFunction::Softplus:
      return std::log(1.0 + std::exp(x));
  }
  return x;
}

/// One sequence, written from ONNX's formulas.
struct Reference {
  const GeneralRecurrentOptions& options;
  const GeneralRecurrentInputs& in;
  std::int64_t hidden;

  double f(std::size_t which, double x) const {
    return applied(options.functions[which], x, options.alpha[which], options.beta[which],
                   which < 2 ? options.clip : 0.0);
  }
  // Row `gate` of R h + b for unit k.
  double product(const std::vector<double>& h, std::int64_t gate, std::int64_t k) const {
    const std::int64_t row = gate * hidden + k;
    double sum = in.bias.defined() ? in.bias.data<double>()[row] : 0.0;
    for (std::int64_t j = 0; j < hidden; ++j) {
      sum += in.weight.data<double>()[row * hidden + j] * h[static_cast<std::size_t>(j)];
    }
    return sum;
  }
  double peephole(std::int64_t gate, std::int64_t k) const {
    return in.peephole.defined() ? in.peephole.data<double>()[gate * hidden + k] : 0.0;
  }

  void step(const double* x, std::vector<double>& h, std::vector<double>& c) const {
    const std::vector<double> before = h;
    const auto units = static_cast<std::size_t>(hidden);
    std::vector<double> z(units), reset(units);
    for (std::size_t u = 0; u < units; ++u) {
      const auto k = static_cast<std::int64_t>(u);
      switch (options.cell) {
        case GeneralCell::Rnn:
          h[u] = f(0, x[k] + product(before, 0, k));
          break;
        case GeneralCell::Gru:
          z[u] = f(0, x[k] + product(before, 0, k));
          reset[u] = f(0, x[hidden + k] + product(before, 1, k));
          break;
        case GeneralCell::Lstm: {
          const double i = f(0, x[k] + product(before, 0, k) + peephole(0, k) * c[u]);
          const double forget =
              options.input_forget
                  ? 1.0 - i
                  : f(0, x[2 * hidden + k] + product(before, 2, k) + peephole(2, k) * c[u]);
          c[u] = forget * c[u] + i * f(1, x[3 * hidden + k] + product(before, 3, k));
          const double o = f(0, x[hidden + k] + product(before, 1, k) + peephole(1, k) * c[u]);
          h[u] = o * f(2, c[u]);
          break;
        }
      }
    }
    if (options.cell != GeneralCell::Gru) return;
    std::vector<double> gated(units);
    for (std::size_t u = 0; u < units; ++u) gated[u] = reset[u] * before[u];
    for (std::size_t u = 0; u < units; ++u) {
      const auto k = static_cast<std::int64_t>(u);
      const double hidden_part =
          options.linear_before_reset ? reset[u] * product(before, 2, k) : product(gated, 2, k);
      const double n = f(1, x[2 * hidden + k] + hidden_part);
      h[u] = (1.0 - z[u]) * n + z[u] * before[u];
    }
  }
};

constexpr std::int64_t kSteps = 4;
constexpr std::int64_t kBatch = 3;
constexpr std::int64_t kHidden = 5;

std::int64_t gates_of(GeneralCell cell) {
  return cell == GeneralCell::Lstm ? 4 : cell == GeneralCell::Gru ? 3 : 1;
}

GeneralRecurrentInputs random_inputs(GeneralCell cell, Generator& generator) {
  const std::int64_t gates = gates_of(cell) * kHidden;
  const auto random = [&](const Dims& sizes) { return randn(sizes, generator).to(DType::Float64); };
  GeneralRecurrentInputs in{.gates = random({kSteps, kBatch, gates}),
                            .weight = random({gates, kHidden}),
                            .bias = random({gates}),
                            .h_0 = random({kBatch, kHidden})};
  if (cell == GeneralCell::Lstm) {
    in.c_0 = random({kBatch, kHidden});
    in.peephole = random({3 * kHidden});
  }
  return in;
}

GeneralRecurrentInputs in_float(GeneralRecurrentInputs in) {
  for (Tensor* x : {&in.gates, &in.weight, &in.bias, &in.h_0, &in.c_0, &in.peephole}) {
    if (x->defined()) *x = x->to(DType::Float32);
  }
  return in;
}

void check_against_reference(const GeneralRecurrentOptions& options,
                             const GeneralRecurrentInputs& in) {
  const RecurrentResult doubles = general_recurrent(options, in);
  const RecurrentResult floats = general_recurrent(options, in_float(in));
  const std::vector<std::int64_t> lengths = in.lengths.defined()
                                                ? in.lengths.to_int64_vector()
                                                : std::vector<std::int64_t>(kBatch, kSteps);
  const Reference reference{options, in, kHidden};
  const std::int64_t gates = gates_of(options.cell) * kHidden;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const auto state = [&](const Tensor& x) {
      if (!x.defined()) return std::vector<double>();
      const double* row = x.data<double>() + b * kHidden;
      return std::vector<double>(row, row + kHidden);
    };
    std::vector<double> h = state(in.h_0);
    std::vector<double> c = state(in.c_0);
    const auto same = [&](const Tensor& got, const Tensor& narrow, std::int64_t row, double want,
                          std::int64_t k) {
      CHECK(got.data<double>()[row * kHidden + k] == doctest::Approx(want).epsilon(1e-12));
      CHECK(narrow.data<float>()[row * kHidden + k] == doctest::Approx(want).epsilon(1e-4));
    };
    for (std::int64_t s = 0; s < kSteps; ++s) {
      const std::int64_t t = options.order == StepOrder::Forward ? s : kSteps - 1 - s;
      const bool runs = t < lengths[static_cast<std::size_t>(b)];
      if (runs) reference.step(in.gates.data<double>() + (t * kBatch + b) * gates, h, c);
      for (std::int64_t k = 0; k < kHidden; ++k) {
        same(doubles.output, floats.output, t * kBatch + b,
             runs ? h[static_cast<std::size_t>(k)] : 0.0, k);
      }
    }
    for (std::int64_t k = 0; k < kHidden; ++k) {
      same(doubles.h_n, floats.h_n, b, h[static_cast<std::size_t>(k)], k);
      if (in.c_0.defined()) same(doubles.c_n, floats.c_n, b, c[static_cast<std::size_t>(k)], k);
    }
  }
}

GeneralRecurrentOptions usual(GeneralCell cell) {
  GeneralRecurrentOptions options{.cell = cell};
  const std::size_t count = cell == GeneralCell::Lstm ? 3 : cell == GeneralCell::Gru ? 2 : 1;
  if (cell == GeneralCell::Rnn) options.functions = {GateFunction::Tanh};
  options.functions.resize(count);
  options.alpha.assign(count, 0.3);
  options.beta.assign(count, 0.6);
  return options;
}

TEST_CASE("general_recurrent: every function gives what the formulas give in both orders") {
  Generator generator(41);
  for (const GeneralCell cell : {GeneralCell::Rnn, GeneralCell::Gru, GeneralCell::Lstm}) {
    for (int number = 0; number <= static_cast<int>(GateFunction::Softplus); ++number) {
      CAPTURE(number);
      GeneralRecurrentOptions options = usual(cell);
      std::ranges::fill(options.functions, static_cast<GateFunction>(number));
      // Functions without a bound grow: clip them.
      options.clip = number % 2 == 0 ? 0.9 : 1.7;
      options.order = number % 3 == 0 ? StepOrder::Reverse : StepOrder::Forward;
      check_against_reference(options, random_inputs(cell, generator));
    }
  }
}

TEST_CASE("general_recurrent: lengths and missing parts are as the formulas have them") {
  Generator generator(42);
  for (const GeneralCell cell : {GeneralCell::Rnn, GeneralCell::Gru, GeneralCell::Lstm}) {
    for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
      for (const bool variant : {false, true}) {
        GeneralRecurrentOptions options = usual(cell);
        options.order = order;
        options.linear_before_reset = variant && cell == GeneralCell::Gru;
        options.input_forget = variant && cell == GeneralCell::Lstm;
        GeneralRecurrentInputs in = random_inputs(cell, generator);
        check_against_reference(options, in);
        in.lengths = Tensor::from_int64(std::vector<std::int64_t>{2, kSteps, 0});
        if (variant) in.lengths = in.lengths.to(DType::Int32);
        check_against_reference(options, in);
        in.bias = {};
        in.peephole = {};
        in.lengths = {};
        check_against_reference(options, in);
      }
    }
  }
}

TEST_CASE("general_recurrent: an LSTM of the usual kind is that of recurrent_steps") {
  Generator generator(43);
  GeneralRecurrentInputs in = in_float(random_inputs(GeneralCell::Lstm, generator));
  in.peephole = {};
  const RecurrentResult general = general_recurrent(usual(GeneralCell::Lstm), in);
  // i, o, f, c to i, f, g, o.
  const auto reordered = [](const Tensor& x, std::int64_t dim) {
    const std::array parts{x.narrow(dim, 0, kHidden), x.narrow(dim, 2 * kHidden, kHidden),
                           x.narrow(dim, 3 * kHidden, kHidden), x.narrow(dim, kHidden, kHidden)};
    return cat(parts, dim);
  };
  const std::vector<std::int64_t> batch_sizes(kSteps, kBatch);
  RecurrentSteps steps;
  steps.hidden_size = kHidden;
  steps.batch_sizes = batch_sizes;
  const RecurrentResult packed = recurrent_steps(
      steps, {.weight_hh = reordered(in.weight, 0), .bias_hh = reordered(in.bias, 0)},
      reordered(in.gates, 2).view({kSteps * kBatch, 4 * kHidden}), in.h_0, in.c_0);
  test::check_close(general.output.view({kSteps * kBatch, kHidden}), packed.output);
  test::check_close(general.h_n, packed.h_n);
  test::check_close(general.c_n, packed.c_n);
}

TEST_CASE("general_recurrent: what does not fit is refused by name") {
  Generator generator(44);
  const GeneralRecurrentInputs lstm = random_inputs(GeneralCell::Lstm, generator);
  const GeneralRecurrentOptions options = usual(GeneralCell::Lstm);
  const auto refuses = [&](const char* text, const auto& change) {
    GeneralRecurrentInputs in = lstm;
    GeneralRecurrentOptions with = options;
    change(in, with);
    CHECK_THROWS_WITH_AS(general_recurrent(with, in), doctest::Contains(text), ArgumentError);
  };
  refuses("gates: expected [steps, batch, gates]",
          [](auto& in, auto&) { in.gates = in.gates.flatten(0, 1); });
  refuses("gates: expected a multiple of 4",
          [](auto& in, auto&) { in.gates = in.gates.slice(2, 0, 7); });
  refuses("weight: expected Float64 [20, 5]", [](auto& in, auto&) { in.weight = in.weight.t(); });
  refuses("bias: expected Float64 [20]", [](auto& in, auto&) { in.bias = in.bias.slice(0, 0, 5); });
  refuses("c_0: expected Float64 [3, 5], got an undefined one",
          [](auto& in, auto&) { in.c_0 = {}; });
  refuses("peephole: expected Float64 [15]",
          [](auto& in, auto&) { in.peephole = in.peephole.slice(0, 0, 5); });
  refuses("lengths: expected Int32 or Int64 [3]",
          [](auto& in, auto&) { in.lengths = Tensor::zeros({3}); });
  refuses("lengths: expected 0..4, got 5", [](auto& in, auto&) {
    in.lengths = Tensor::from_int64(std::vector<std::int64_t>{1, 5, 2});
  });
  refuses("functions: expected 3", [](auto&, auto& with) { with.functions.pop_back(); });
  refuses("clip: expected a number >= 0", [](auto&, auto& with) { with.clip = -1.0; });
  refuses("c_0: expected none but for lstm", [](auto& in, auto& with) {
    with = usual(GeneralCell::Rnn);
    in.gates = in.gates.slice(2, 0, kHidden);
    in.weight = in.weight.slice(0, 0, kHidden);
    in.bias = in.bias.slice(0, 0, kHidden);
    in.peephole = {};
  });
}

}  // namespace
}  // namespace quanta
