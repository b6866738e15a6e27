#include "quanta/nn/rnn.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "quanta/nn/rnn_cell.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/modules.h"

namespace quanta::nn {
namespace {

using test::parameter_names;

// Floats that went through products of other shapes.
void check_near(const Tensor& got, const Tensor& want) {
  REQUIRE(got.sizes() == want.sizes());
  const std::vector<float> lhs = got.to_float_vector();
  const std::vector<float> rhs = want.to_float_vector();
  for (std::size_t i = 0; i < lhs.size(); ++i) {
    CHECK(lhs[i] == doctest::Approx(rhs[i]).epsilon(1e-5));
  }
}

RecurrentOptions both_ways() {
  return {.input_size = 6, .hidden_size = 5, .num_layers = 2, .bidirectional = true};
}

TEST_CASE("LSTM: the names and sizes of torch") {
  const LSTM lstm(
      {.input_size = 3, .hidden_size = 6, .num_layers = 2, .bidirectional = true, .proj_size = 4});
  const StateDict state = lstm.state_dict();
  CHECK(state.size() == 20);
  CHECK(state.at("weight_ih_l0").sizes() == Dims{24, 3});
  CHECK(state.at("weight_hh_l0").sizes() == Dims{24, 4});
  CHECK(state.at("weight_hr_l0").sizes() == Dims{4, 6});
  CHECK(state.at("weight_ih_l1_reverse").sizes() == Dims{24, 8});
  CHECK(state.at("bias_hh_l1_reverse").sizes() == Dims{24});
  const GRU gru({.input_size = 2, .hidden_size = 3, .bias = false});
  CHECK(parameter_names(gru) == std::vector<std::string>{"weight_ih_l0", "weight_hh_l0"});
  CHECK(gru.state_dict().at("weight_ih_l0").sizes() == Dims{9, 2});
}

TEST_CASE("LSTM: weights gives the parameters of a layer and direction") {
  const LSTM lstm(both_ways());
  const StateDict state = lstm.state_dict();
  const RecurrentLayer::Weights weights = lstm.weights(1, 1);
  CHECK(weights.weight_ih.is_same(state.at("weight_ih_l1_reverse")));
  CHECK(weights.bias_hh.is_same(state.at("bias_hh_l1_reverse")));
  CHECK(!weights.weight_hr.defined());
  CHECK_THROWS_WITH_AS(lstm.weights(2, 0), doctest::Contains("LSTM: layer: expected 0..1, got 2"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.weights(0, 2), doctest::Contains("direction: expected 0..1, got 2"),
                       ArgumentError);
}

TEST_CASE("recurrent layers: new weights lie within the bound of the hidden size") {
  for (const auto& [name, tensor] : GRU({.input_size = 30, .hidden_size = 16}).named_parameters()) {
    for (const float value : tensor.to_float_vector()) CHECK(std::abs(value) <= 0.25F);
  }
}

TEST_CASE("recurrent layers: print as torch prints them") {
  CHECK(to_string(LSTM({.input_size = 5, .hidden_size = 4})) == "LSTM(5, 4)");
  CHECK(to_string(LSTM({.input_size = 5,
                        .hidden_size = 4,
                        .num_layers = 2,
                        .bias = false,
                        .batch_first = true,
                        .dropout = 0.5,
                        .bidirectional = true,
                        .proj_size = 2})) ==
        "LSTM(5, 4, proj_size=2, num_layers=2, bias=False, batch_first=True, dropout=0.5, "
        "bidirectional=True)");
  CHECK(to_string(RNN({.input_size = 5, .hidden_size = 4}, RnnNonlinearity::Relu)) == "RNN(5, 4)");
  CHECK(to_string(RNNCell({.input_size = 5, .hidden_size = 4}, RnnNonlinearity::Relu)) ==
        "RNNCell(5, 4, nonlinearity=relu)");
  CHECK(to_string(GRUCell({.input_size = 5, .hidden_size = 4, .bias = false})) ==
        "GRUCell(5, 4, bias=False)");
}

// A layer as cells that are called step by step.
TEST_CASE("recurrent cells: give step by step what the layer gives at once") {
  manual_seed(3);
  const Tensor x = randn({7, 2, 4});
  const auto load = [](auto& cell, const RecurrentLayer& layer) {
    const RecurrentLayer::Weights weights = layer.weights(0);
    cell.weight_ih = weights.weight_ih;
    cell.weight_hh = weights.weight_hh;
    cell.bias_ih = weights.bias_ih;
    cell.bias_hh = weights.bias_hh;
    cell.eval();
  };
  SUBCASE("LSTM") {
    LSTM layer({.input_size = 4, .hidden_size = 9});
    layer.eval();
    LSTMCell cell({.input_size = 4, .hidden_size = 9});
    load(cell, layer);
    const LstmOutput want = layer.forward(x, LstmState{});
    LstmState state;
    for (std::int64_t step = 0; step < 7; ++step) {
      state = cell.forward(x.select(0, step), state);
      check_near(state.h, want.output.select(0, step));
    }
    check_near(state.c, want.state.c.select(0, 0));
    check_near(cell.forward(x.select(0, 0)), want.output.select(0, 0));
  }
  SUBCASE("GRU") {
    GRU layer({.input_size = 4, .hidden_size = 9});
    layer.eval();
    GRUCell cell({.input_size = 4, .hidden_size = 9});
    load(cell, layer);
    Tensor h;
    for (std::int64_t step = 0; step < 7; ++step) {
      h = cell.forward(x.select(0, step), h);
      check_near(h, layer.forward(x).select(0, step));
    }
  }
  SUBCASE("RNN") {
    RNN layer({.input_size = 4, .hidden_size = 9}, RnnNonlinearity::Relu);
    layer.eval();
    RNNCell cell({.input_size = 4, .hidden_size = 9}, RnnNonlinearity::Relu);
    load(cell, layer);
    Tensor h;
    for (std::int64_t step = 0; step < 7; ++step) h = cell.forward(x.select(0, step), h);
    check_near(h, layer.forward(x, Tensor()).h_n.select(0, 0));
  }
}

TEST_CASE("LSTM: one sequence without a batch and batch first are the same numbers") {
  manual_seed(4);
  LSTM lstm(both_ways());
  lstm.eval();
  RecurrentOptions options = both_ways();
  options.batch_first = true;
  LSTM by_batch(options);
  by_batch.load_state_dict(lstm.state_dict());
  by_batch.eval();
  const Tensor x = randn({8, 3, 6});
  const LstmState state{randn({4, 3, 5}), randn({4, 3, 5})};
  const LstmOutput want = lstm.forward(x, state);
  CHECK(want.output.sizes() == Dims{8, 3, 10});
  const LstmOutput swapped = by_batch.forward(x.transpose(0, 1), state);
  CHECK(swapped.output.transpose(0, 1).equal(want.output));
  CHECK(swapped.state.h.equal(want.state.h));
  for (std::int64_t i = 0; i < 3; ++i) {
    const LstmOutput one =
        by_batch.forward(x.select(1, i), LstmState{state.h.select(1, i), state.c.select(1, i)});
    check_near(one.output, want.output.select(1, i));
    check_near(one.state.h, want.state.h.select(1, i));
    check_near(one.state.c, want.state.c.select(1, i));
  }
}

// Sequences of several lengths, the longest not first.
struct Sequences {
  std::vector<std::int64_t> lengths{3, 7, 1, 7, 4};
  std::vector<Tensor> parts;
  Tensor padded;
  explicit Sequences(std::int64_t features) {
    for (const std::int64_t length : lengths) parts.push_back(randn({length, features}));
    padded = pad_sequence(parts);
  }
  Tensor length_tensor() const { return Tensor::from_int64(lengths); }
};

template <typename Layer, typename Output>
void check_packed_as_alone(Layer& layer, Output&& output_of) {
  layer.eval();
  const Sequences sequences(layer.options().input_size);
  const PackedSequence packed = pack_sequence(sequences.parts, false);
  const auto result = layer.forward(packed);
  const PaddedSequence padded = pad_packed_sequence(result.output);
  CHECK(padded.lengths.to_int64_vector() == sequences.lengths);
  for (std::size_t i = 0; i < sequences.parts.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    const auto alone = output_of(layer, sequences.parts[i]);
    const Tensor own = padded.output.select(1, place);
    check_near(own.slice(0, 0, sequences.lengths[i]), alone[0]);
    check_near(own.slice(0, sequences.lengths[i], 7),
               Tensor::zeros({7 - sequences.lengths[i], alone[0].size(1)}));
    if constexpr (requires { result.h_n; }) {
      check_near(result.h_n.select(1, place), alone[1]);
    } else {
      check_near(result.state.h.select(1, place), alone[1]);
      check_near(result.state.c.select(1, place), alone[2]);
    }
  }
}

TEST_CASE("packed sequences: each one gets what it gets alone") {
  manual_seed(5);
  const auto gated = [](const auto& layer, const Tensor& x) {
    const RnnOutput result = layer.forward(x, Tensor());
    return std::vector<Tensor>{result.output, result.h_n};
  };
  const auto lstm_output = [](const LSTM& layer, const Tensor& x) {
    const LstmOutput result = layer.forward(x, LstmState{});
    return std::vector<Tensor>{result.output, result.state.h, result.state.c};
  };
  LSTM lstm(both_ways());
  check_packed_as_alone(lstm, lstm_output);
  RecurrentOptions projected = both_ways();
  projected.proj_size = 3;
  LSTM with_projection(projected);
  check_packed_as_alone(with_projection, lstm_output);
  GRU gru(both_ways());
  check_packed_as_alone(gru, gated);
  RNN rnn(both_ways());
  check_packed_as_alone(rnn, gated);
}

TEST_CASE("packed sequences: initial states stay with their sequences") {
  manual_seed(6);
  LSTM lstm(both_ways());
  lstm.eval();
  const Sequences sequences(6);
  const LstmState state{randn({4, 5, 5}), randn({4, 5, 5})};
  const PackedLstmOutput result = lstm.forward(pack_sequence(sequences.parts, false), state);
  for (std::int64_t i = 0; i < 5; ++i) {
    const LstmOutput alone = lstm.forward(sequences.parts[static_cast<std::size_t>(i)],
                                          LstmState{state.h.select(1, i), state.c.select(1, i)});
    check_near(result.state.h.select(1, i), alone.state.h);
    check_near(result.state.c.select(1, i), alone.state.c);
  }
}

TEST_CASE("pack_padded_sequence: the order of torch") {
  const Tensor x = Tensor::from_values({1, 2, 0, 3, 4, 5, 6, 0, 0}, {3, 3, 1});  // batch first
  const Tensor lengths = Tensor::from_int64(std::array<std::int64_t, 3>{2, 3, 1});
  const PackedSequence packed =
      pack_padded_sequence(x, lengths, {.batch_first = true, .enforce_sorted = false});
  CHECK(packed.data.to_float_vector() == std::vector<float>{3, 1, 6, 4, 2, 5});
  CHECK(packed.batch_sizes.to_int64_vector() == std::vector<std::int64_t>{3, 2, 1});
  CHECK(packed.sorted_indices.to_int64_vector() == std::vector<std::int64_t>{1, 0, 2});
  CHECK(packed.unsorted_indices.to_int64_vector() == std::vector<std::int64_t>{1, 0, 2});
  const PaddedSequence back = pad_packed_sequence(packed, {.batch_first = true});
  CHECK(back.output.equal(x));
  CHECK(back.lengths.equal(lengths));
}

TEST_CASE("pad_packed_sequence: another padding and a total length") {
  const std::vector<Tensor> parts{Tensor::ones({2, 1}), Tensor::ones({1, 1})};
  const PaddedSequence padded =
      pad_packed_sequence(pack_sequence(parts), {.padding_value = -1.0, .total_length = 3});
  CHECK(padded.output.to_float_vector() == std::vector<float>{1, 1, 1, -1, -1, -1});
  CHECK_THROWS_WITH_AS(pad_packed_sequence(pack_sequence(parts), {.total_length = 1}),
                       doctest::Contains("pad_packed_sequence: total_length: expected at least 2"),
                       ArgumentError);
}

TEST_CASE("pack_padded_sequence: lengths that do not fit are refused by name") {
  const Tensor x = randn({4, 3, 2});
  const auto pack = [&](std::vector<std::int64_t> lengths, bool enforce_sorted = true) {
    return pack_padded_sequence(x, Tensor::from_int64(lengths), {.enforce_sorted = enforce_sorted});
  };
  CHECK_THROWS_WITH_AS(pack({4, 3}),
                       doctest::Contains("lengths: expected one for each of 3 sequences"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(pack({3, 4, 1}), doctest::Contains("lengths: expected the longest first"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(pack({4, 3, 0}),
                       doctest::Contains("lengths: expected 1..4 (the steps of x), got 0"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(pack({5, 3, 1}, false),
                       doctest::Contains("lengths: expected 1..4 (the steps of x), got 5"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(pack_padded_sequence(x, randn({3})),
                       doctest::Contains("lengths: expected Int64 [batch], got Float32 [3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(pack_padded_sequence(randn({3}), x), doctest::Contains("x: expected"),
                       ArgumentError);
  CHECK_THROWS_AS(pack_sequence({}), ArgumentError);
}

TEST_CASE("pad_packed_sequence: parts that do not fit each other are refused by name") {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const Tensor x = randn({4, 3, 2});
  const PackedSequence whole =
      pack_padded_sequence(x, Tensor::from_int64(std::array<std::int64_t, 3>{4, 3, 1}));
  const auto refused = [&](const char* text, const PackedSequence& packed) {
    CHECK_THROWS_WITH_AS(pad_packed_sequence(packed), doctest::Contains(text), ArgumentError);
    CHECK_THROWS_WITH_AS(GRU({.input_size = 2, .hidden_size = 3}).forward(packed),
                         doctest::Contains(text), ArgumentError);
  };
  const auto with_sizes = [&](const std::vector<std::int64_t>& sizes) {
    PackedSequence packed = whole;
    packed.batch_sizes = Tensor::from_int64(sizes);
    return packed;
  };
  refused("batch_sizes: expected numbers >= 1 that do not grow, got 3 in step 1",
          with_sizes({2, 3, 3}));
  refused("batch_sizes: expected numbers >= 1 that do not grow, got 0 in step 2",
          with_sizes({4, 4, 0}));
  refused("batch_sizes: expected Int64 [steps] of one step or more", with_sizes({}));
  // Sums that 64 bits do not hold.
  refused("data: expected sizes [9223372036854775807, ...]", with_sizes({kHuge, kHuge, 5}));
  refused("data: expected sizes [7, ...] (the sum of batch_sizes), got [8, 2]",
          with_sizes({3, 2, 2}));
  refused("data: expected a tensor, got an undefined one", {Tensor(), whole.batch_sizes});
  refused("batch_sizes: expected Int64", {whole.data, Tensor()});
  refused("batch_sizes: expected Int64", {whole.data, Tensor::ones({4})});
  for (const std::int64_t steps : {kHuge, std::int64_t{1} << 61}) {
    CHECK_THROWS_AS(pad_packed_sequence(whole, {.total_length = steps}), ArgumentError);
  }
  CHECK_THROWS_WITH_AS(GRU({.input_size = 2, .hidden_size = 3})
                           .forward(PackedSequence{Tensor::ones({8}), whole.batch_sizes}),
                       doctest::Contains("data: expected 2 dimensions"), ArgumentError);
  PackedSequence unsorted = whole;
  unsorted.unsorted_indices = Tensor::from_int64(std::array<std::int64_t, 1>{0});
  refused("sorted_indices: expected", unsorted);
}

TEST_CASE("recurrent layers: bad input is refused by name") {
  const LSTM lstm({.input_size = 4, .hidden_size = 3, .num_layers = 2});
  const Tensor x = randn({5, 2, 4});
  const Tensor state = randn({2, 2, 3});
  CHECK_THROWS_WITH_AS(lstm.forward(randn({5, 2, 3})),
                       doctest::Contains("LSTM: x: expected 4 features (input_size), got sizes"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(randn({4})), doctest::Contains("LSTM: x: expected 2"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(Tensor()), doctest::Contains("LSTM: x: expected a tensor"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(Tensor::ones({5, 2, 4}, DType::Int64)),
                       doctest::Contains("LSTM: x: expected Float32, got Int64"), ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(randn({0, 2, 4})), doctest::Contains("at least one step"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(x, LstmState{randn({2, 3, 3}), state}),
                       doctest::Contains("LSTM: h: expected sizes [2, 2, 3], got [2, 3, 3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(x, LstmState{state, randn({1, 2, 3})}),
                       doctest::Contains("LSTM: c: expected sizes [2, 2, 3], got [1, 2, 3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(x, LstmState{state, {}}),
                       doctest::Contains("LSTM: c: expected both h and c or none"), ArgumentError);
  CHECK_THROWS_WITH_AS(lstm.forward(randn({5, 4}), LstmState{state, state}),
                       doctest::Contains("state: expected 2 dimensions as x has no batch"),
                       ArgumentError);
  PackedSequence packed =
      pack_padded_sequence(x, Tensor::from_int64(std::array<std::int64_t, 2>{5, 2}));
  packed.data = packed.data.slice(0, 0, 3);
  CHECK_THROWS_WITH_AS(lstm.forward(packed), doctest::Contains("LSTM: data: expected sizes [7"),
                       ArgumentError);
  packed.batch_sizes = Tensor::from_int64(std::array<std::int64_t, 2>{1, 2});
  CHECK_THROWS_WITH_AS(lstm.forward(packed), doctest::Contains("batch_sizes: expected numbers"),
                       ArgumentError);
  const GRUCell cell({.input_size = 4, .hidden_size = 3});
  CHECK_THROWS_WITH_AS(cell.forward(randn({2, 4}), randn({3, 3})),
                       doctest::Contains("GRUCell: h: expected sizes [2, 3], got [3, 3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(cell.forward(randn({2, 5})),
                       doctest::Contains("GRUCell: x: expected 4 features"), ArgumentError);
  CHECK_THROWS_WITH_AS(cell.forward(randn({2, 2, 4})), doctest::Contains("GRUCell: x: expected 1"),
                       ArgumentError);
}

TEST_CASE("recurrent layers: bad options are refused by name") {
  CHECK_THROWS_WITH_AS(LSTM({.hidden_size = 3}), doctest::Contains("LSTM: input_size: expected"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(GRU({.input_size = 3}), doctest::Contains("GRU: hidden_size: expected"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(RNN({.input_size = 3, .hidden_size = 2, .num_layers = 0}),
                       doctest::Contains("RNN: num_layers: expected"), ArgumentError);
  // More than memory holds: refused before the first is made.
  CHECK_THROWS_WITH_AS(
      LSTM({.input_size = 3, .hidden_size = 2, .num_layers = std::int64_t{1} << 50U}),
      doctest::Contains("LSTM: num_layers: expected 1..65536, got 1125899906842624"),
      ArgumentError);
  CHECK_THROWS_WITH_AS(LSTM({.input_size = 3, .hidden_size = 2, .dropout = 1.5}),
                       doctest::Contains("dropout: expected 0..1, got 1.5"), ArgumentError);
  CHECK_THROWS_WITH_AS(LSTM({.input_size = 3, .hidden_size = 2, .proj_size = 2}),
                       doctest::Contains("proj_size: expected less than hidden_size 2, got 2"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(GRU({.input_size = 3, .hidden_size = 2, .proj_size = 1}),
                       doctest::Contains("GRU: proj_size: expected 0"), ArgumentError);
  CHECK_THROWS_WITH_AS(LSTMCell({.input_size = 3}), doctest::Contains("LSTMCell: hidden_size"),
                       ArgumentError);
}

TEST_CASE("LSTMCell: a weight of other sizes is refused") {
  LSTMCell cell({.input_size = 3, .hidden_size = 2});
  cell.weight_hh = randn({12, 2});
  CHECK_THROWS_WITH_AS(cell.forward(randn({1, 3})),
                       doctest::Contains("weight_hh: expected as many rows as weight_ih"),
                       ArgumentError);
}

TEST_CASE("LSTM: dropout between layers acts in train mode alone") {
  manual_seed(7);
  RecurrentOptions options = both_ways();
  options.dropout = 1.0;
  LSTM lstm(options);
  const Tensor x = randn({4, 2, 6});
  // With everything dropped the second layer sees zeros, whatever x is.
  CHECK(lstm(x).equal(lstm(randn({4, 2, 6}))));
  lstm.eval();
  CHECK(!lstm(x).equal(lstm(randn({4, 2, 6}))));
}

TEST_CASE("LSTM: changed weights are packed anew and train mode agrees with eval mode") {
  manual_seed(8);
  LSTM lstm({.input_size = 6, .hidden_size = 4, .num_layers = 2});
  const Tensor x = randn({5, 2, 6});
  const Tensor trained = lstm(x);
  lstm.eval();
  check_near(lstm(x), trained);
  lstm.weights(1).weight_hh.fill_(0.0);
  const Tensor changed = lstm(x);
  CHECK(!changed.equal(trained));
  lstm.train();
  check_near(lstm(x), changed);
}

TEST_CASE("LSTM: a call with a state is observed and runs no forward hooks") {
  LSTM lstm({.input_size = 3, .hidden_size = 2});
  int calls = 0;
  lstm.register_forward_hook([&](const Module&, const Tensor&, const Tensor& y) {
    ++calls;
    return y;
  });
  const auto observer = std::make_shared<MinMaxObserver>();
  lstm.set_activation_post_process(observer);
  const Tensor x = randn({4, 2, 3});
  const Tensor y = lstm.forward(x, LstmState{}).output;
  CHECK(calls == 0);
  CHECK(observer->min_val().item() == min(y).item());
  lstm(x);
  CHECK(calls == 1);
}

TEST_CASE("LSTM: a clone has weights of its own") {
  manual_seed(9);
  const std::shared_ptr<LSTM> net = make_module<LSTM>(both_ways());
  net->eval();
  const Tensor x = randn({3, 2, 6});
  const std::shared_ptr<Module> copy = net->clone();
  CHECK((*copy)(x).equal((*net)(x)));
  copy->parameters()[0].fill_(0.0);
  CHECK(!(*copy)(x).equal((*net)(x)));
}

TEST_CASE("LSTM: safe from many threads at once") {
  manual_seed(10);
  LSTM lstm(both_ways());
  lstm.eval();
  const Tensor x = randn({9, 2, 6});
  const Tensor want = lstm(x);
  std::array<bool, 4> same{};
  std::vector<std::thread> threads;
  for (bool& result : same) {
    threads.emplace_back([&] {
      result = true;
      for (int i = 0; i < 20; ++i) result = result && lstm(x).equal(want);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool result : same) CHECK(result);
}

TEST_CASE("GRU: a batch of no sequences gives none") {
  GRU gru({.input_size = 4, .hidden_size = 3});
  const RnnOutput result = gru.forward(randn({5, 0, 4}), Tensor());
  CHECK(result.output.sizes() == Dims{5, 0, 3});
  CHECK(result.h_n.sizes() == Dims{1, 0, 3});
}

}  // namespace
}  // namespace quanta::nn
