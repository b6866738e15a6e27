#include "quanta/nn/quantizable/lstm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "observed.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/container.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/lstm.h"
#include "quanta/nn/quantized/qfunctional.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::nn {
namespace {

using quantizable::GateForm;
using test::largest_difference;

// Observers that see all 8 bits.
QConfig minmax_qconfig() { return {MinMaxObserver::with_args({}), default_weight_observer()}; }

// In a list, so that convert finds it as a child.
struct InList {
  ModuleList list;
  explicit InList(const std::shared_ptr<Module>& module) { list.push_back(module); }
  std::shared_ptr<Module> module() const { return list.ptr(0); }
  template <typename T>
  const T& as() const {
    return dynamic_cast<const T&>(*list.ptr(0));
  }
};

// Prepared, calibrated with x, converted.
template <typename Calibrate>
InList int8_form(const std::shared_ptr<Module>& source, const QConfig& qconfig,
                 Calibrate&& calibrate) {
  InList holder(source);
  prepare_(holder.list, qconfig);
  calibrate(*holder.module());
  convert_(holder.list);
  return holder;
}

const quantized::Linear& linear_of(const Module& cell, const std::string& name) {
  return dynamic_cast<const quantized::Linear&>(*cell.get_submodule(name));
}
const quantized::QFunctional& functional_of(const Module& cell, const std::string& name) {
  return dynamic_cast<const quantized::QFunctional&>(*cell.get_submodule(name));
}

struct QState {
  QTensor h, c;
};

// One step from the ops, with the parameters that the cell's parts hold.
QState reference_step(const Module& cell, const QTensor& x, const QState& state, GateForm form) {
  namespace q = quanta::quantized;
  const auto linear = [&](const std::string& name, const QTensor& input) {
    const quantized::Linear& part = linear_of(cell, name);
    return q::linear(input, q::LinearPackedParams(part.weight(), part.bias()), part.scale,
                     part.zero_point);
  };
  const auto add = [&](const std::string& name, const QTensor& lhs, const QTensor& rhs) {
    const quantized::QFunctional& part = functional_of(cell, name);
    return q::add(lhs, rhs, part.scale, part.zero_point);
  };
  const auto mul = [&](const std::string& name, const QTensor& lhs, const QTensor& rhs) {
    const quantized::QFunctional& part = functional_of(cell, name);
    return q::mul(lhs, rhs, part.scale, part.zero_point);
  };
  std::array<QTensor, 4> gates;
  const std::array<std::string, 4> names{".input", ".forget", ".cell", ".output"};
  const std::int64_t hidden = state.h.size(1);
  for (std::size_t i = 0; i < 4; ++i) {
    if (form == GateForm::Split) {
      gates[i] = add("gates" + names[i], linear("igates" + names[i], x),
                     linear("hgates" + names[i], state.h));
    } else {
      const Tensor all = add("gates", linear("igates", x), linear("hgates", state.h));
      gates[i] =
          all.narrow(1, static_cast<std::int64_t>(i) * hidden, hidden).contiguous().as_quantized();
    }
  }
  const QTensor i = sigmoid(gates[0]).as_quantized();
  const QTensor f = sigmoid(gates[1]).as_quantized();
  const QTensor g = tanh(gates[2]).as_quantized();
  const QTensor o = sigmoid(gates[3]).as_quantized();
  const QTensor c =
      add("fgate_cx_igate_cgate", mul("fgate_cx", f, state.c), mul("igate_cgate", i, g));
  return {mul("ogate_cy", o, tanh(c).as_quantized()), c};
}

TEST_CASE("quantizable LSTM: gives what the float LSTM gives") {
  manual_seed(5);
  Generator generator(5);
  for (const GateForm form : {GateForm::Joined, GateForm::Split}) {
    for (const bool bidirectional : {false, true}) {
      for (const std::int64_t layers : {1, 2, 3}) {
        const bool batch_first = layers == 2;
        CAPTURE(bidirectional);
        CAPTURE(layers);
        const auto source = make_module<LSTM>(RecurrentOptions{.input_size = 5,
                                                               .hidden_size = 7,
                                                               .num_layers = layers,
                                                               .bias = layers != 3,
                                                               .batch_first = batch_first,
                                                               .bidirectional = bidirectional});
        source->eval();
        const auto taken_apart = quantizable::LSTM::from_float(*source, form);
        const Tensor x = randn(batch_first ? Dims{3, 6, 5} : Dims{6, 3, 5}, generator);
        CHECK(largest_difference((*taken_apart)(x), (*source)(x)) < 1e-5);
        const std::int64_t places = layers * (bidirectional ? 2 : 1);
        const LstmState state{randn({places, 3, 7}, generator), randn({places, 3, 7}, generator)};
        const LstmOutput want = source->forward(x, state);
        const LstmOutput got = taken_apart->forward(x, state);
        CHECK(largest_difference(got.output, want.output) < 1e-5);
        CHECK(largest_difference(got.state.h, want.state.h) < 1e-5);
        CHECK(largest_difference(got.state.c, want.state.c) < 1e-5);
        // Without the batch, and one step.
        const Tensor single = randn({1, 5}, generator);
        CHECK(largest_difference((*taken_apart)(single), (*source)(single)) < 1e-5);
      }
    }
  }
}

TEST_CASE("quantizable LSTM: sequences of different lengths give what the float LSTM gives") {
  manual_seed(6);
  Generator generator(6);
  for (const bool bidirectional : {false, true}) {
    const auto source = make_module<LSTM>(RecurrentOptions{
        .input_size = 4, .hidden_size = 6, .num_layers = 2, .bidirectional = bidirectional});
    source->eval();
    const auto taken_apart = quantizable::LSTM::from_float(*source);
    const Tensor x = randn({5, 4, 4}, generator);
    const std::vector<std::int64_t> lengths{2, 5, 3, 2};
    const PackedSequence packed =
        pack_padded_sequence(x, Tensor::from_int64(lengths), {.enforce_sorted = false});
    const std::int64_t places = bidirectional ? 4 : 2;
    const LstmState state{randn({places, 4, 6}, generator), randn({places, 4, 6}, generator)};
    const PackedLstmOutput want = source->forward(packed, state);
    const PackedLstmOutput got = taken_apart->forward(packed, state);
    CHECK(largest_difference(got.output.data, want.output.data) < 1e-5);
    CHECK(largest_difference(got.state.h, want.state.h) < 1e-5);
    CHECK(largest_difference(got.state.c, want.state.c) < 1e-5);
  }
}

TEST_CASE("quantizable LSTMCell: gives what the float cell gives") {
  manual_seed(7);
  Generator generator(7);
  LSTMCell source({.input_size = 5, .hidden_size = 3});
  source.eval();
  for (const GateForm form : {GateForm::Joined, GateForm::Split}) {
    const auto cell = quantizable::LSTMCell::from_float(source, form);
    const Tensor x = randn({4, 5}, generator);
    const LstmState state{randn({4, 3}, generator), randn({4, 3}, generator)};
    const LstmState want = source.forward(x, state);
    const LstmState got = cell->forward(x, state);
    CHECK(largest_difference(got.h, want.h) < 1e-5);
    CHECK(largest_difference(got.c, want.c) < 1e-5);
    CHECK(largest_difference((*cell)(x), source(x)) < 1e-5);
    CHECK(cell->weights().weight_ih.equal(source.weight_ih));
    CHECK(cell->weights().bias_hh.equal(source.bias_hh));
  }
}

TEST_CASE("quantized LSTM: integers are those of its ops one after the other") {
  manual_seed(8);
  Generator generator(8);
  for (const GateForm form : {GateForm::Joined, GateForm::Split}) {
    for (const bool bidirectional : {false, true}) {
      CAPTURE(bidirectional);
      const auto source = make_module<LSTM>(
          RecurrentOptions{.input_size = 5, .hidden_size = 9, .bidirectional = bidirectional});
      source->eval();
      const Tensor x = randn({6, 3, 5}, generator);
      const auto observed = quantizable::LSTM::from_float(*source, form);
      const InList holder =
          int8_form(observed, minmax_qconfig(), [&](const Module& module) { module(x); });
      const auto& module = holder.as<quantized::LSTM>();
      const QTensor input = quantize_per_tensor(x, 0.05, 120, DType::QUInt8);
      const LstmOutput got = module.forward(input, {});
      const QTensor zeros = quantize_per_tensor(Tensor::zeros({3, 9}), 1.0, 0, DType::QUInt8);
      std::vector<std::vector<QTensor>> outputs;
      for (std::int64_t direction = 0; direction < module.num_directions(); ++direction) {
        const std::shared_ptr<Module> cell = module.get_submodule(
            direction == 0 ? "layers.0.layer_fw.cell" : "layers.0.layer_bw.cell");
        QState state{zeros, zeros};
        std::vector<QTensor> steps(6);
        for (std::int64_t i = 0; i < 6; ++i) {
          const std::int64_t t = direction == 0 ? i : 5 - i;
          state = reference_step(*cell, input.select(0, t).as_quantized(), state, form);
          steps[static_cast<std::size_t>(t)] = state.h;
        }
        outputs.push_back(steps);
        if (direction == 0) {
          CHECK(got.state.h.select(0, 0).equal(state.h));
          CHECK(got.state.c.select(0, 0).equal(state.c));
        }
      }
      for (std::int64_t t = 0; t < 6; ++t) {
        const auto slot = static_cast<std::size_t>(t);
        std::vector<Tensor> both;
        for (const std::vector<QTensor>& steps : outputs) both.emplace_back(steps[slot]);
        CHECK(got.output.select(0, t).equal(cat(both, 1)));
      }
      CHECK(module(input).equal(got.output));
    }
  }
}

TEST_CASE("quantized LSTM: keeps torch's names and prints as torch") {
  const auto source = make_module<LSTM>(
      RecurrentOptions{.input_size = 2, .hidden_size = 3, .num_layers = 2, .bidirectional = true});
  source->eval();
  const Tensor x = randn({4, 2, 2});
  const InList holder =
      int8_form(source, minmax_qconfig(), [&](const Module& module) { module(x); });
  const auto& module = holder.as<quantized::LSTM>();
  const std::vector<std::string> names = test::names(module.state_dict());
  CHECK(names.size() == 4 * (2 * 4 + 5 * 2));
  for (const char* name :
       {"layers.0.layer_fw.cell.igates.scale", "layers.1.layer_bw.cell.hgates.zero_point",
        "layers.0.layer_bw.cell.gates.scale",
        "layers.1.layer_fw.cell.fgate_cx_igate_cgate.zero_point",
        "layers.0.layer_fw.cell.ogate_cy.scale",
        "layers.0.layer_fw.cell.hgates._packed_params._packed_params/0"}) {
    CAPTURE(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
  // Both directions of the first layer go into the second.
  CHECK(linear_of(*module.get_submodule("layers.1.layer_fw.cell"), "igates").weight().size(1) == 6);
  CHECK(module.type_name() == "QuantizedLSTM");
  CHECK(to_string(module).find("(layer_bw): _LSTMSingleLayer(") != std::string::npos);
}

TEST_CASE("quantizable LSTM: what has no observable form is refused by name") {
  const auto projected =
      make_module<LSTM>(RecurrentOptions{.input_size = 2, .hidden_size = 3, .proj_size = 2});
  CHECK_THROWS_WITH_AS(quantizable::LSTM::from_float(*projected),
                       doctest::Contains("proj_size: expected 0"), UnsupportedError);
  CHECK_THROWS_WITH_AS(quantizable::LSTM::from_float(Linear({.in_features = 1, .out_features = 1})),
                       doctest::Contains("module: expected LSTM, got Linear"), ArgumentError);
  const auto source = make_module<LSTM>(RecurrentOptions{.input_size = 2, .hidden_size = 3});
  CHECK_THROWS_WITH_AS(
      quantized::LSTM::from_observed(*source),
      doctest::Contains("quantized::LSTM.from_observed: module: expected quantizable LSTM"),
      ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::LSTM::from_observed(*quantizable::LSTM::from_float(*source)),
                       doctest::Contains("got Linear 'layers.0.layer_fw.cell.igates'"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantizable::LSTMCell::from_params(
                           {.weight_ih = Tensor::ones({8, 3}), .weight_hh = Tensor::ones({8, 3})}),
                       doctest::Contains("from_params: weights: expected weight_ih"),
                       ArgumentError);
}

TEST_CASE("quantized LSTM: float tensors and states that do not fit are refused by name") {
  const auto source = make_module<LSTM>(RecurrentOptions{.input_size = 2, .hidden_size = 3});
  source->eval();
  const Tensor x = randn({4, 2, 2});
  const InList holder =
      int8_form(source, minmax_qconfig(), [&](const Module& module) { module(x); });
  const auto& module = holder.as<quantized::LSTM>();
  const QTensor input = quantize_per_tensor(x, 0.05, 120, DType::QUInt8);
  CHECK_THROWS_WITH_AS(module(x), doctest::Contains("quantized::linear: x: expected"),
                       ArgumentError);
  const Tensor zeros = Tensor::zeros({1, 2, 3});
  CHECK_THROWS_WITH_AS(module.forward(input, {zeros, zeros}), doctest::Contains("quantized::"),
                       ArgumentError);
  const QTensor wrong = quantize_per_tensor(Tensor::zeros({1, 4, 3}), 1.0, 0, DType::QUInt8);
  CHECK_THROWS_AS(module.forward(input, {wrong, wrong}), ArgumentError);
  CHECK_THROWS_WITH_AS(module.weights(0),
                       doctest::Contains("expected a cell that is not converted"),
                       UnsupportedError);
  // A state that one call gave starts the next.
  const LstmOutput first = module.forward(input, {});
  CHECK(module.forward(input, first.state).output.sizes() == Dims{4, 2, 3});
}

}  // namespace
}  // namespace quanta::nn
