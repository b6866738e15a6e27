// Gradients of recurrent layers, through time: proved by finite differences in double precision;
// the vectorised Float32 ones are compared with those.

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "elementwise_support.h"
#include "gradients_support.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/rnn.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradients;
using test::flat;
using test::Inputs;
using test::largest_difference;
using test::leaf;
using test::Op;

constexpr RecurrentKind kKinds[] = {RecurrentKind::RnnTanh, RecurrentKind::RnnRelu,
                                    RecurrentKind::Lstm, RecurrentKind::Gru};

// One layer in one direction; its inputs are gates, h_0, weight_hh, then bias_hh, c_0 and weight_hr
// as far as it has them.
struct Layer {
  RecurrentKind kind = RecurrentKind::Lstm;
  std::int64_t hidden = 3;
  std::vector<std::int64_t> batch_sizes{3, 2, 2, 1};
  StepOrder order = StepOrder::Forward;
  bool bias = true;
  std::int64_t projected = 0;

  std::vector<Tensor> inputs() const {
    const std::int64_t gates = gate_count(kind) * hidden;
    const std::int64_t width = projected > 0 ? projected : hidden;
    std::int64_t rows = 0;
    for (const std::int64_t size : batch_sizes) rows += size;
    std::vector<Tensor> result{leaf({rows, gates}, 1), leaf({batch_sizes[0], width}, 2),
                               leaf({gates, width}, 3, -1.0, 1.0)};
    if (bias) result.push_back(leaf({gates}, 4, -1.0, 1.0));
    if (kind == RecurrentKind::Lstm) result.push_back(leaf({batch_sizes[0], hidden}, 5));
    if (projected > 0) result.push_back(leaf({projected, hidden}, 6, -1.0, 1.0));
    return result;
  }

  RecurrentResult run(Inputs in) const {
    RecurrentSteps steps;
    steps.kind = kind;
    steps.hidden_size = hidden;
    steps.batch_sizes = batch_sizes;
    steps.order = order;
    StepWeights weights{in[2]};
    std::size_t next = 3;
    if (bias) weights.bias_hh = in[next++];
    const Tensor c_0 = kind == RecurrentKind::Lstm ? in[next++] : Tensor();
    if (projected > 0) weights.weight_hr = in[next++];
    return recurrent_steps(steps, weights, in[0], in[1], c_0);
  }

  // All results in one tensor.
  Op op() const {
    return [*this](Inputs in) {
      const RecurrentResult result = run(in);
      std::vector<Tensor> parts{result.output.flatten(), result.h_n.flatten()};
      if (result.c_n.defined()) parts.push_back(result.c_n.flatten());
      return cat(parts, 0);
    };
  }
};

TEST_CASE("recurrent steps have the gradients that finite differences give") {
  for (const RecurrentKind kind : kKinds) {
    for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
      for (const bool bias : {false, true}) {
        Layer layer{.kind = kind, .order = order, .bias = bias};
        check_gradients(layer.op(), layer.inputs());
        layer.batch_sizes = {2};
        check_gradients(layer.op(), layer.inputs());
      }
    }
  }
  for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
    const Layer layer{.hidden = 4, .order = order, .projected = 2};
    check_gradients(layer.op(), layer.inputs());
  }
}

TEST_CASE("recurrent steps: Float32 gradients agree with Float64, on every instruction set") {
  test::for_each_target([] {
    for (const RecurrentKind kind : kKinds) {
      for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
        const Layer layer{.kind = kind, .hidden = 37, .batch_sizes = {5, 5, 3, 1}, .order = order};
        check_float32(layer.op(), layer.inputs(), test::Order::Contiguous, 2e-5);
      }
    }
    const Layer projected{.hidden = 19, .batch_sizes = {4, 2, 2}, .projected = 7};
    check_float32(projected.op(), projected.inputs(), test::Order::Contiguous, 2e-5);
  });
}

TEST_CASE("recurrent steps: any number of threads gives the same gradients") {
  for (const RecurrentKind kind : kKinds) {
    const Layer layer{.kind = kind, .hidden = 600, .batch_sizes = {9, 9, 4}};
    std::vector<std::vector<float>> gates;
    for (const int threads : {1, 3}) {
      const test::Threads guard(threads);
      std::vector<Tensor> inputs;
      for (const Tensor& x : layer.inputs()) {
        inputs.push_back(x.detach().to(DType::Float32));
        inputs.back().set_requires_grad();
      }
      sum(layer.op()(inputs)).backward();
      gates.push_back(inputs[0].grad().to_float_vector());
    }
    double worst = 0.0;
    for (std::size_t i = 0; i < gates[0].size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(gates[0][i] - gates[1][i])));
    }
    CHECK(worst <= 1e-4);
  }
}

TEST_CASE("recurrent steps: only what requires a gradient gets one") {
  const Layer layer;
  std::vector<Tensor> inputs;
  for (const Tensor& x : layer.inputs()) inputs.push_back(x.detach());
  CHECK_FALSE(layer.run(inputs).output.requires_grad());
  inputs[1].set_requires_grad();
  const RecurrentResult result = layer.run(inputs);
  sum(result.c_n).backward();
  CHECK(inputs[1].grad().defined());
  CHECK_FALSE(inputs[2].grad().defined());
  {
    const autograd::NoGradGuard guard;
    CHECK_FALSE(layer.run(inputs).h_n.requires_grad());
  }
}

TEST_CASE("recurrent steps: no sequences give gradients of zeros") {
  const Layer layer{.batch_sizes = {0, 0}};
  const std::vector<Tensor> inputs = layer.inputs();
  sum(layer.op()(inputs)).backward();
  for (const float value : inputs[2].grad().to_float_vector()) CHECK(value == 0.0F);
  CHECK(inputs[0].grad().sizes() == inputs[0].sizes());
}

TEST_CASE("recurrent steps: bad arguments of the form with weights are refused by name") {
  const Layer layer;
  const std::vector<Tensor> good = layer.inputs();
  const auto refused = [&](std::size_t at, const Tensor& x, const char* text) {
    std::vector<Tensor> inputs = good;
    inputs[at] = x;
    CHECK_THROWS_WITH_AS(layer.run(inputs), doctest::Contains(text), ArgumentError);
  };
  refused(0, good[0].detach().to(DType::Float32), "h_0: expected Float32");
  refused(1, good[1].detach().to(DType::Float32), "h_0: expected Float64 [3, 3], got Float32");
  refused(2, leaf({12, 4}), "weight_hh: expected Float64 [12, 3], got Float64 [12, 4]");
  refused(3, leaf({11}), "bias_hh: expected Float64 [12]");
  refused(4, Tensor(), "c_0: expected a tensor");
  const Layer projected{.projected = 2};
  std::vector<Tensor> inputs = projected.inputs();
  inputs[5] = leaf({3, 3});
  CHECK_THROWS_WITH_AS(projected.run(inputs),
                       doctest::Contains("weight_hr: expected Float64 [2, 3]"), ArgumentError);
}

TEST_CASE("recurrent steps: a packed weight has no gradient and says so") {
  const Layer layer;
  std::vector<Tensor> inputs;
  for (const Tensor& x : layer.inputs()) inputs.push_back(x.detach().to(DType::Float32));
  inputs[0].set_requires_grad();
  const auto product = float_hidden_product(inputs[2], inputs[3]);
  const RecurrentSteps steps{
      .hidden_size = layer.hidden, .batch_sizes = layer.batch_sizes, .hidden = product.get()};
  CHECK_THROWS_WITH_AS(recurrent_steps(steps, inputs[0], inputs[1], inputs[4]),
                       doctest::Contains("recurrent_steps (packed): x: expected tensors that"),
                       UnsupportedError);
}

// Modules -----------------------------------------------------------------------------------------

// A layer whose parameters are what a test gives, so that finite differences reach them.
template <typename Base>
struct Open : Base {
  using Base::Base;

  void take(Inputs values) const {
    for (std::size_t i = 0; i < values.size(); ++i) this->parameter_at(i) = values[i];
  }
};

// Leaves of the parameters' sizes.
std::vector<Tensor> leaves_like(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& x : tensors) {
    result.push_back(leaf(x.sizes(), 10 + result.size(), -0.8, 0.8));
  }
  return result;
}

std::vector<Tensor> joined(std::vector<Tensor> first, const std::vector<Tensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST_CASE("LSTM layers have the gradients that finite differences give") {
  for (const bool train : {false, true}) {
    for (const nn::RecurrentOptions& options :
         {nn::RecurrentOptions{.input_size = 3, .hidden_size = 2},
          nn::RecurrentOptions{.input_size = 2,
          .hidden_size = 3,
          .num_layers = 2,
          .bias = false,
          .batch_first = true,
          .bidirectional = true},
          nn::RecurrentOptions{.input_size = 2,
          .hidden_size = 3,
          .num_layers = 2,
          .bidirectional = true,
          .proj_size = 2}}) {
      Open<nn::LSTM> lstm(options);
      lstm.train(train);
      const std::int64_t places = options.num_layers * lstm.num_directions();
      // x [3, 2, ...] or batch first, with two sequences.
      const Dims sizes =
          options.batch_first ? Dims{2, 3, options.input_size} : Dims{3, 2, options.input_size};
      const Op op = [&](Inputs in) {
        lstm.take(in.subspan(3));
        const nn::LstmOutput result = lstm.forward(in[0], nn::LstmState{in[1], in[2]});
        return flat({result.output, result.state.h, result.state.c});
      };
      const std::vector<Tensor> inputs =
          joined({leaf(sizes, 1), leaf({places, 2, lstm.output_size()}, 2),
                  leaf({places, 2, options.hidden_size}, 3)},
                 leaves_like(lstm.parameters()));
      check_gradients(op, inputs);
      check_float32(op, inputs);
    }
  }
}

TEST_CASE("GRU and RNN layers have the gradients that finite differences give") {
  const nn::RecurrentOptions options{
      .input_size = 2, .hidden_size = 3, .num_layers = 2, .bidirectional = true};
  const auto check = [](const auto& layer) {
    const Op op = [&](Inputs in) {
      layer.take(in.subspan(2));
      const nn::RnnOutput result = layer.forward(in[0], in[1]);
      return flat({result.output, result.h_n});
    };
    const std::vector<Tensor> inputs =
        joined({leaf({3, 2, 2}, 1), leaf({4, 2, 3}, 2)}, leaves_like(layer.parameters()));
    check_gradients(op, inputs);
    check_float32(op, inputs);
    // One sequence without a state.
    const Op single = [&](Inputs in) {
      layer.take(in.subspan(1));
      return layer.forward(in[0]);
    };
    check_gradients(single, joined({leaf({3, 2}, 1)}, leaves_like(layer.parameters())));
  };
  check(Open<nn::GRU>(options));
  check(Open<nn::RNN>(options));
  check(Open<nn::RNN>(options, nn::RnnNonlinearity::Relu));
}

TEST_CASE("packed sequences have the gradients that finite differences give") {
  const nn::RecurrentOptions options{.input_size = 2,
                                     .hidden_size = 2,
                                     .num_layers = 2,
                                     .batch_first = true,
                                     .bidirectional = true};
  const Tensor lengths = Tensor::from_int64(std::vector<std::int64_t>{2, 4, 1});
  const Open<nn::LSTM> lstm(options);
  const Op op = [&](Inputs in) {
    lstm.take(in.subspan(3));
    const nn::PackedSequence packed =
        nn::pack_padded_sequence(in[0], lengths, {.batch_first = true, .enforce_sorted = false});
    const nn::PackedLstmOutput result = lstm.forward(packed, nn::LstmState{in[1], in[2]});
    const Tensor padded = nn::pad_packed_sequence(result.output, {.batch_first = true}).output;
    return flat({padded, result.state.h, result.state.c});
  };
  const std::vector<Tensor> inputs = joined(
      {leaf({3, 4, 2}, 1), leaf({4, 3, 2}, 2), leaf({4, 3, 2}, 3)}, leaves_like(lstm.parameters()));
  check_gradients(op, inputs);
  check_float32(op, inputs);

  const Open<nn::GRU> gru(options);
  const Op gru_op = [&](Inputs in) {
    gru.take(in.subspan(1));
    const nn::PackedSequence packed =
        nn::pack_padded_sequence(in[0], lengths, {.batch_first = true, .enforce_sorted = false});
    return gru.forward(packed).output.data;
  };
  check_gradients(gru_op, joined({leaf({3, 4, 2}, 1)}, leaves_like(gru.parameters())));
}

TEST_CASE("recurrent cells have the gradients that finite differences give, step by step") {
  const auto check = [](auto& cell, const auto& steps) {
    const Op op = [&](Inputs in) {
      cell.weight_ih = in[3];
      cell.weight_hh = in[4];
      cell.bias_ih = in[5];
      cell.bias_hh = in[6];
      return steps(cell, in);
    };
    const std::int64_t rows = cell.gates() * 3;
    const std::vector<Tensor> inputs{leaf({2, 2, 4}, 1),
                                     leaf({2, 3}, 2),
                                     leaf({2, 3}, 3),
                                     leaf({rows, 4}, 4, -1.0, 1.0),
                                     leaf({rows, 3}, 5, -1.0, 1.0),
                                     leaf({rows}, 6),
                                     leaf({rows}, 7)};
    check_gradients(op, inputs);
    check_float32(op, inputs, test::Order::Contiguous, 5e-6);
  };
  // The same weights in two steps: their gradients add up. c stands for itself where there is none.
  const auto plain = [](const auto& cell, Inputs in) {
    const Tensor h = cell.forward(in[0].select(0, 0), in[1]);
    return flat({cell.forward(in[0].select(0, 1), h), in[2]});
  };
  const auto lstm = [](const nn::LSTMCell& cell, Inputs in) {
    const nn::LstmState state = cell.forward(in[0].select(0, 0), nn::LstmState{in[1], in[2]});
    const nn::LstmState last = cell.forward(in[0].select(0, 1), state);
    return flat({last.h, last.c});
  };
  const nn::CellOptions options{.input_size = 4, .hidden_size = 3};
  nn::RNNCell tanh_cell(options);
  nn::RNNCell relu_cell(options, nn::RnnNonlinearity::Relu);
  nn::GRUCell gru_cell(options);
  nn::LSTMCell lstm_cell(options);
  check(tanh_cell, plain);
  check(relu_cell, plain);
  check(gru_cell, plain);
  check(lstm_cell, lstm);
}

TEST_CASE("dropout between layers: gradients go through what was kept") {
  const nn::RecurrentOptions options{
      .input_size = 3, .hidden_size = 4, .num_layers = 2, .dropout = 0.5};
  Open<nn::GRU> gru(options);
  gru.train(true);
  const Op op = [&](Inputs in) {
    gru.take(in.subspan(1));
    manual_seed(17);
    return gru.forward(in[0]);
  };
  const std::vector<Tensor> inputs = joined({leaf({3, 2, 3}, 1)}, leaves_like(gru.parameters()));
  check_gradients(op, inputs);
  gru.train(false);
  check_gradients(op, inputs);
}

TEST_CASE("recurrent layers: gradients add up over calls and are the same in train and eval mode") {
  nn::LSTM lstm({.input_size = 3, .hidden_size = 5});
  lstm.requires_grad_();
  const Tensor x = randn({4, 2, 3});
  const Tensor first = [&] {
    sum(lstm.forward(x)).backward();
    return lstm.parameters()[1].grad().clone();
  }();
  lstm.train(false);
  sum(lstm.forward(x)).backward();
  const std::vector<float> once = first.to_float_vector();
  const std::vector<float> twice = lstm.parameters()[1].grad().to_float_vector();
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == 2.0F * once[i]);
}

TEST_CASE("a quantizable LSTM has the gradients of the plain one") {
  for (const auto form : {nn::quantizable::GateForm::Joined, nn::quantizable::GateForm::Split}) {
    nn::LSTM lstm({.input_size = 3, .hidden_size = 4, .num_layers = 2, .bidirectional = true});
    const auto parts = nn::quantizable::LSTM::from_float(lstm, form);
    const auto gradients = [](nn::LSTM& module, const Tensor& data) {
      module.train(true);
      module.requires_grad_();
      const Tensor x = data.clone();
      x.set_requires_grad();
      const nn::LstmOutput y = module.forward(x, nn::LstmState{});
      (sum(mul(y.output, y.output)) + sum(y.state.c)).backward();
      std::vector<Tensor> parameters{x.grad()};
      double norm = 0.0;
      for (const Tensor& parameter : module.parameters()) {
        REQUIRE(parameter.grad().defined());
        norm += sum(mul(parameter.grad(), parameter.grad())).to_float_vector()[0];
      }
      parameters.push_back(Tensor::full({1}, norm));
      return parameters;
    };
    const Tensor x = randn({5, 2, 3});
    const std::vector<Tensor> expected = gradients(lstm, x);
    const std::vector<Tensor> got = gradients(*parts, x);
    CHECK(largest_difference(got[0], expected[0]) < 1e-5);
    CHECK(got[1].to_float_vector()[0] ==
          doctest::Approx(static_cast<double>(expected[1].to_float_vector()[0])).epsilon(1e-4));
  }
}

TEST_CASE("recurrent layers: train, eval and recorded calls give the same floats") {
  for (const bool bidirectional : {false, true}) {
    nn::LSTM lstm({.input_size = 6,
                   .hidden_size = 20,
                   .num_layers = 2,
                   .bidirectional = bidirectional,
                   .proj_size = 7});
    const Tensor x = randn({5, 3, 6});
    lstm.train(false);
    const std::vector<float> packed = lstm.forward(x).to_float_vector();
    lstm.train(true);
    const Tensor unrecorded = lstm.forward(x);
    CHECK_FALSE(unrecorded.requires_grad());
    CHECK(unrecorded.to_float_vector() == packed);
    lstm.requires_grad_();
    const Tensor recorded = lstm.forward(x);
    CHECK(recorded.requires_grad());
    CHECK(recorded.detach().to_float_vector() == packed);
  }
}

}  // namespace
}  // namespace quanta
