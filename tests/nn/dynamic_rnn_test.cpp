#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/container.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta::test {
namespace {

namespace qd = nn::quantized::dynamic;
using qd::ReduceRange;
using Matrix = std::vector<std::vector<double>>;

std::shared_ptr<nn::Module> with_qconfig(std::shared_ptr<nn::Module> module,
                                         const QConfig& qconfig = default_dynamic_qconfig()) {
  module->eval();
  module->set_qconfig(qconfig);
  return module;
}

template <typename Float, typename Dynamic>
std::shared_ptr<Dynamic> dynamic_of(const nn::RecurrentOptions& options,
                                    const QConfig& qconfig = default_dynamic_qconfig()) {
  const auto source = with_qconfig(nn::make_module<Float>(options), qconfig);
  auto module = std::dynamic_pointer_cast<Dynamic>(Dynamic::from_float(*source));
  module->eval();
  return module;
}

// W x + b of rows [rows, K], by linear_dynamic: its arithmetic has tests of its own.
Matrix product(const Tensor& x, const Tensor& weight, const Tensor& bias, ReduceRange range) {
  const Tensor y =
      weight.is_quantized()
          ? quantized::linear_dynamic(x, quantized::LinearPackedParams(weight.as_quantized(), bias),
                                      range)
          : quantized::linear_dynamic_fp16(x, quantized::LinearPackedParamsFp16(weight, bias));
  const std::vector<float> values = y.to_float_vector();
  const auto columns = static_cast<std::size_t>(weight.sizes()[0]);
  Matrix rows;
  for (std::size_t i = 0; i < values.size(); i += columns) {
    rows.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(i),
                      values.begin() + static_cast<std::ptrdiff_t>(i + columns));
  }
  return rows;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// One step of one sequence, the formulas of torch's documentation.
void lstm_step(const std::vector<double>& x, const std::vector<double>& g, std::vector<float>& h,
               std::vector<double>& c) {
  const std::size_t n = h.size();
  for (std::size_t i = 0; i < n; ++i) {
    const auto gate = [&](std::size_t number) { return x[number * n + i] + g[number * n + i]; };
    c[i] = sigmoid(gate(1)) * c[i] + sigmoid(gate(0)) * std::tanh(gate(2));
    h[i] = static_cast<float>(sigmoid(gate(3)) * std::tanh(c[i]));
  }
}

void gru_step(const std::vector<double>& x, const std::vector<double>& g, std::vector<float>& h,
              std::vector<double>&) {
  const std::size_t n = h.size();
  for (std::size_t i = 0; i < n; ++i) {
    const double reset = sigmoid(x[i] + g[i]);
    const double update = sigmoid(x[n + i] + g[n + i]);
    const double candidate = std::tanh(x[2 * n + i] + reset * g[2 * n + i]);
    h[i] = static_cast<float>((h[i] - candidate) * update + candidate);
  }
}

using Step = void (*)(const std::vector<double>&, const std::vector<double>&, std::vector<float>&,
                      std::vector<double>&);

// All layers and directions of x [steps, batch, features], from states of zeros.
Tensor reference(const nn::RecurrentLayer& layer, const Tensor& input, ReduceRange range,
                 Step step) {
  const std::int64_t steps = input.sizes()[0];
  const std::int64_t batch = input.sizes()[1];
  const std::int64_t hidden = layer.options().hidden_size;
  const std::int64_t directions = layer.num_directions();
  Tensor x = input;
  for (std::int64_t number = 0; number < layer.options().num_layers; ++number) {
    std::vector<float> output(static_cast<std::size_t>(steps * batch * directions * hidden));
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const nn::RecurrentWeights w = layer.weights(number, direction);
      const Matrix gates =
          product(x.reshape({steps * batch, x.sizes()[2]}), w.weight_ih, w.bias_ih, range);
      std::vector<float> state(static_cast<std::size_t>(batch * hidden));
      std::vector<std::vector<double>> cells(static_cast<std::size_t>(batch),
                                             std::vector<double>(static_cast<std::size_t>(hidden)));
      for (std::int64_t i = 0; i < steps; ++i) {
        const std::int64_t t = direction == 0 ? i : steps - 1 - i;
        const Matrix recurrent =
            product(Tensor::from_values(state, {batch, hidden}), w.weight_hh, w.bias_hh, range);
        for (std::int64_t b = 0; b < batch; ++b) {
          const auto begin = state.begin() + b * hidden;
          std::vector<float> h(begin, begin + hidden);
          step(gates[static_cast<std::size_t>(t * batch + b)],
               recurrent[static_cast<std::size_t>(b)], h, cells[static_cast<std::size_t>(b)]);
          std::copy(h.begin(), h.end(), begin);
          std::copy(h.begin(), h.end(),
                    output.begin() + ((t * batch + b) * directions + direction) * hidden);
        }
      }
    }
    x = Tensor::from_values(output, {steps, batch, directions * hidden});
  }
  return x;
}

// A state that lies next to a rounding tie can take the other code, one step of about 1/64.
void check_close(const Tensor& got, const Tensor& expected, double allowed) {
  REQUIRE(got.sizes() == expected.sizes());
  const std::vector<float> a = got.to_float_vector();
  const std::vector<float> b = expected.to_float_vector();
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  CHECK(largest <= allowed);
}

std::vector<nn::RecurrentOptions> shapes() {
  return {{.input_size = 1, .hidden_size = 1},
          {.input_size = 17, .hidden_size = 33, .num_layers = 2},
          {.input_size = 5, .hidden_size = 64, .bias = false},
          {.input_size = 40, .hidden_size = 19, .num_layers = 3, .bidirectional = true}};
}

}  // namespace

TEST_CASE("dynamic LSTM and GRU: results are those of the formulas step by step") {
  manual_seed(11);  // the weights: other tests draw from the same generator
  std::uint64_t seed = 1;
  for (const nn::RecurrentOptions& options : shapes()) {
    for (const std::int64_t batch : {1, 3, 9}) {
      for (const QConfig& qconfig :
           {default_dynamic_qconfig(), per_channel_dynamic_qconfig(), float16_dynamic_qconfig()}) {
        CAPTURE(options.hidden_size);
        CAPTURE(batch);
        const Tensor x = random_tensor({6, batch, options.input_size}, ++seed);
        const auto lstm = dynamic_of<nn::LSTM, qd::LSTM>(options, qconfig);
        const auto gru = dynamic_of<nn::GRU, qd::GRU>(options, qconfig);
        for (const ReduceRange range : {ReduceRange::Yes, ReduceRange::No}) {
          lstm->set_reduce_range(range);
          gru->set_reduce_range(range);
          check_close((*lstm)(x), reference(*lstm, x, range, lstm_step), 2e-3);
          check_close((*gru)(x), reference(*gru, x, range, gru_step), 2e-3);
        }
      }
    }
  }
}

TEST_CASE("dynamic LSTM: any number of threads gives the same floats") {
  const auto lstm =
      dynamic_of<nn::LSTM, qd::LSTM>({.input_size = 96, .hidden_size = 520, .bidirectional = true});
  const Tensor x = random_tensor({5, 12, 96}, 3);
  const Threads guard(1);
  const Tensor one = (*lstm)(x);
  set_num_threads(3);
  const Tensor three = (*lstm)(x);
  CHECK(three.equal(one));
}

TEST_CASE("dynamic GRU: one module serves many threads at once") {
  const auto gru = dynamic_of<nn::GRU, qd::GRU>({.input_size = 24, .hidden_size = 40});
  std::vector<Tensor> inputs;
  std::vector<Tensor> expected;
  for (std::uint64_t i = 0; i < 4; ++i) {
    inputs.push_back(random_tensor({9, 2, 24}, 20 + i));
    expected.push_back((*gru)(inputs.back()));
  }
  std::vector<Tensor> results(inputs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < 10; ++run) results[i] = (*gru)(inputs[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(results[i].equal(expected[i]));
}

TEST_CASE("dynamic LSTM: two calls with the state handed on hold the products of each part") {
  const auto lstm =
      dynamic_of<nn::LSTM, qd::LSTM>({.input_size = 8, .hidden_size = 16, .batch_first = true});
  const Tensor x = random_tensor({2, 7, 8}, 4);
  const nn::LstmOutput first = lstm->forward(x.narrow(1, 0, 3), nn::LstmState{});
  const nn::LstmOutput second = lstm->forward(x.narrow(1, 3, 4), first.state);
  CHECK(first.output.sizes() == Dims{2, 3, 16});
  CHECK(second.output.select(1, 3).equal(second.state.h.select(0, 0)));
  // Each part has an activation scale of its own, so the whole in one call is only close.
  check_close(second.output, lstm->forward(x, nn::LstmState{}).output.narrow(1, 3, 4), 0.1);
}

TEST_CASE("dynamic GRU: a packed sequence gives what each sequence alone gives in float16") {
  const auto gru = dynamic_of<nn::GRU, qd::GRU>(
      {.input_size = 5, .hidden_size = 9, .batch_first = true, .bidirectional = true},
      float16_dynamic_qconfig());
  const Tensor x = random_tensor({3, 6, 5}, 5);
  const std::array<std::int64_t, 3> lengths{2, 6, 4};
  Tensor length_tensor = Tensor::zeros({3}, DType::Int64);
  for (std::size_t i = 0; i < 3; ++i) length_tensor.mutable_data<std::int64_t>()[i] = lengths[i];
  const nn::PackedSequence packed =
      nn::pack_padded_sequence(x, length_tensor, {.batch_first = true, .enforce_sorted = false});
  const nn::PaddedSequence padded =
      nn::pad_packed_sequence(gru->forward(packed).output, {.batch_first = true});
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t length = lengths[static_cast<std::size_t>(i)];
    const Tensor alone = (*gru)(x.narrow(0, i, 1).narrow(1, 0, length));
    check_close(padded.output.narrow(0, i, 1).narrow(1, 0, length), alone, 1e-6);
  }
}

TEST_CASE("dynamic layers: weights come back as they were quantized") {
  const auto source = nn::make_module<nn::LSTM>(
      nn::RecurrentOptions{.input_size = 6, .hidden_size = 5, .num_layers = 2});
  with_qconfig(source, per_channel_dynamic_qconfig());
  const auto module = qd::LSTM::from_float(*source);
  const auto& lstm = dynamic_cast<const qd::LSTM&>(*module);
  CHECK(lstm.weight_dtype() == DType::QInt8);
  const nn::RecurrentWeights weights = lstm.weights(1);
  CHECK(weights.weight_hh.as_quantized().qscheme() == QScheme::PerChannelAffine);
  check_close(dequantize(weights.weight_hh.as_quantized()), source->weights(1).weight_hh, 3e-3);
  CHECK(weights.bias_ih.equal(source->weights(1).bias_ih));
  CHECK_THROWS_AS(lstm.weights(2), ArgumentError);
  CHECK_THROWS_AS(lstm.weights(0, 1), ArgumentError);

  with_qconfig(source, float16_dynamic_qconfig());
  const auto half = qd::LSTM::from_float(*source);
  CHECK(dynamic_cast<const qd::LSTM&>(*half).weights(0).weight_ih.dtype() == DType::Float16);
}

TEST_CASE("dynamic cells: a step is the layer's step") {
  const Tensor x = random_tensor({3, 7}, 6);
  const Tensor h = random_tensor({3, 11}, 7);
  const Tensor c = random_tensor({3, 11}, 8);
  for (const QConfig& qconfig : {default_dynamic_qconfig(), float16_dynamic_qconfig()}) {
    const auto source = with_qconfig(
        nn::make_module<nn::LSTM>(nn::RecurrentOptions{.input_size = 7, .hidden_size = 11}),
        qconfig);
    const auto cell_source = with_qconfig(
        nn::make_module<nn::LSTMCell>(nn::CellOptions{.input_size = 7, .hidden_size = 11}),
        qconfig);
    auto& cell_weights = dynamic_cast<nn::LSTMCell&>(*cell_source);
    const nn::RecurrentWeights weights = dynamic_cast<nn::LSTM&>(*source).weights(0);
    cell_weights.weight_ih.copy_(weights.weight_ih);
    cell_weights.weight_hh.copy_(weights.weight_hh);
    cell_weights.bias_ih.copy_(weights.bias_ih);
    cell_weights.bias_hh.copy_(weights.bias_hh);
    const auto layer = std::dynamic_pointer_cast<qd::LSTM>(qd::LSTM::from_float(*source));
    const auto cell =
        std::dynamic_pointer_cast<qd::LSTMCell>(qd::LSTMCell::from_float(*cell_source));
    const nn::LstmState of_cell = cell->forward(x, {h, c});
    const nn::LstmState of_layer =
        layer->forward(x.unsqueeze(0), {h.unsqueeze(0), c.unsqueeze(0)}).state;
    CHECK(of_cell.h.equal(of_layer.h.squeeze(0)));
    CHECK(of_cell.c.equal(of_layer.c.squeeze(0)));
    CHECK((*cell)(x).equal(cell->forward(x, nn::LstmState{}).h));
  }
}

TEST_CASE("dynamic RNNCell: relu and tanh follow the float cell") {
  for (const auto nonlinearity : {nn::RnnNonlinearity::Tanh, nn::RnnNonlinearity::Relu}) {
    const auto source = with_qconfig(nn::make_module<nn::RNNCell>(
        nn::CellOptions{.input_size = 4, .hidden_size = 6, .bias = false}, nonlinearity));
    const auto cell = std::dynamic_pointer_cast<qd::RNNCell>(qd::RNNCell::from_float(*source));
    CHECK(cell->nonlinearity() == nonlinearity);
    const Tensor x = random_tensor({4}, 9);
    check_close((*cell)(x), (*source)(x), 0.05);
  }
}

TEST_CASE("dynamic layers: the state has torch's names and a file decides the dtype") {
  const nn::RecurrentOptions options{.input_size = 6, .hidden_size = 5, .bidirectional = true};
  const auto int8 = dynamic_of<nn::LSTM, qd::LSTM>(options);
  const auto half = dynamic_of<nn::LSTM, qd::LSTM>(options, float16_dynamic_qconfig());
  const StateDict state = int8->state_dict();
  CHECK(state.size() == 8);
  CHECK(state.contains("_all_weight_values.1.param/4/0/1"));
  CHECK(state.at("_all_weight_values.0.param/4/1/0").equal(int8->weights(0).weight_hh));
  const Tensor x = random_tensor({3, 2, 6}, 10);
  half->load_state_dict(state);
  CHECK(half->weight_dtype() == DType::QInt8);
  CHECK((*half)(x).equal((*int8)(x)));

  // torch writes Float16 weights as Float32.
  const auto other = dynamic_of<nn::LSTM, qd::LSTM>(options, float16_dynamic_qconfig());
  StateDict wide = other->state_dict();
  for (const auto& [name, tensor] : other->state_dict()) wide.set(name, tensor.to(DType::Float32));
  int8->load_state_dict(wide);
  CHECK(int8->weight_dtype() == DType::Float16);
  CHECK((*int8)(x).equal((*other)(x)));
  int8->load_state_dict(state);

  int8->set_reduce_range(ReduceRange::No);
  CHECK(int8->state_dict().contains("_all_weight_values.0.param/3/0"));
  half->load_state_dict(int8->state_dict());
  CHECK(half->reduce_range() == ReduceRange::No);
  half->load_state_dict(state);
  CHECK(half->reduce_range() == ReduceRange::Yes);
}

TEST_CASE("dynamic cells: state and reduce_range come back") {
  const nn::CellOptions options{.input_size = 6, .hidden_size = 5};
  const auto make = [&](const QConfig& qconfig) {
    const auto source = with_qconfig(nn::make_module<nn::GRUCell>(options), qconfig);
    return std::dynamic_pointer_cast<qd::GRUCell>(qd::GRUCell::from_float(*source));
  };
  const auto int8 = make(default_dynamic_qconfig());
  const auto other = make(float16_dynamic_qconfig());
  int8->set_reduce_range(ReduceRange::No);
  other->load_state_dict(int8->state_dict());
  CHECK(other->reduce_range() == ReduceRange::No);
  const Tensor x = random_tensor({3, 6}, 11);
  CHECK((*other)(x).equal((*int8)(x)));
}

TEST_CASE("dynamic layers: a bad state is refused whole") {
  const auto lstm = dynamic_of<nn::LSTM, qd::LSTM>({.input_size = 6, .hidden_size = 5});
  const auto other = dynamic_of<nn::LSTM, qd::LSTM>({.input_size = 6, .hidden_size = 4});
  const StateDict before = lstm->state_dict();
  CHECK_THROWS_WITH_AS(lstm->load_state_dict(other->state_dict()),
                       doctest::Contains("param/4/0/0: expected sizes [20, 6], got [16, 6]"),
                       ArgumentError);
  StateDict missing = lstm->state_dict();
  missing.erase("_all_weight_values.0.param/4/1/0");
  CHECK_THROWS_AS(lstm->load_state_dict(missing), ArgumentError);
  StateDict wrong = lstm->state_dict();
  wrong.set("_all_weight_values.0.param/3/0", Tensor::ones({2}));
  CHECK_THROWS_WITH_AS(lstm->load_state_dict(wrong), doctest::Contains("expected one Int64"),
                       ArgumentError);
  for (const auto& [name, tensor] : before) CHECK(lstm->state_dict().at(name).equal(tensor));
}

TEST_CASE("dynamic layers: bad input is refused by name") {
  const auto lstm = dynamic_of<nn::LSTM, qd::LSTM>({.input_size = 6, .hidden_size = 5});
  CHECK_THROWS_AS((*lstm)(Tensor::ones({3, 2, 7})), ArgumentError);
  CHECK_THROWS_AS(
      lstm->forward(Tensor::ones({3, 2, 6}), {Tensor::ones({1, 3, 5}), Tensor::ones({1, 2, 5})}),
      ArgumentError);
  CHECK_THROWS_AS((*lstm)(quantize_per_tensor(Tensor::ones({3, 2, 6}), 0.1, 0, DType::QUInt8)),
                  ArgumentError);

  const auto no_qconfig =
      nn::make_module<nn::LSTM>(nn::RecurrentOptions{.input_size = 6, .hidden_size = 5});
  CHECK_THROWS_WITH_AS(qd::LSTM::from_float(*no_qconfig), doctest::Contains("with a qconfig"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(qd::GRU::from_float(*with_qconfig(no_qconfig)),
                       doctest::Contains("expected GRU, got LSTM"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      qd::LSTM::from_float(*with_qconfig(no_qconfig, float_qparams_weight_only_qconfig())),
      doctest::Contains("expected an observer for QInt8 or Float16, got one for QUInt8"),
      ArgumentError);
  const auto projected = with_qconfig(nn::make_module<nn::LSTM>(
      nn::RecurrentOptions{.input_size = 6, .hidden_size = 5, .proj_size = 3}));
  CHECK_THROWS_WITH_AS(qd::LSTM::from_float(*projected), doctest::Contains("proj_size: expected 0"),
                       UnsupportedError);
  const auto again = with_qconfig(qd::LSTM::from_float(*with_qconfig(no_qconfig)));
  CHECK_THROWS_WITH_AS(qd::LSTM::from_float(*again), doctest::Contains("expected a float module"),
                       ArgumentError);
  std::vector<qd::GateWeights> none;
  CHECK_THROWS_WITH_AS(qd::LSTM({.input_size = 6, .hidden_size = 5}, none),
                       doctest::Contains("weights: expected 1"), ArgumentError);
}

TEST_CASE("dynamic layers: they print as torch's do") {
  const auto lstm = dynamic_of<nn::LSTM, qd::LSTM>({.input_size = 6, .hidden_size = 5});
  CHECK(to_string(*lstm) == "DynamicQuantizedLSTM(6, 5)");
  const auto cell = qd::RNNCell::from_float(*with_qconfig(
      nn::make_module<nn::RNNCell>(nn::CellOptions{.input_size = 6, .hidden_size = 5})));
  CHECK(to_string(*cell) == "DynamicQuantizedRNNCell(6, 5)");
}

}  // namespace quanta::test
