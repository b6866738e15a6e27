#include <memory>
#include <utility>

#include "dynamic_pipeline.h"
#include "network.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "registry.h"

namespace quanta::conform {
namespace {

/// A float module of the case with its parameters, dynamically quantized.
std::shared_ptr<nn::Module> dynamic_module(const Case& test, const char* type) {
  const std::shared_ptr<nn::Module> module = make_module(type, test.attr("args"));
  module->load_state_dict(state_dict_from(test.object("state_dict")));
  nn::Sequential net;
  net.add_module("m", module);
  quantize_dynamic_(net, DynamicSpec().add_name("m", qconfig_from_name(test.text("qconfig"))));
  return net.get_submodule("m");
}

nn::LstmState state_of(const Case& test) {
  return {test.optional_tensor("h_0"), test.optional_tensor("c_0")};
}

/// The outputs of a layer, called plainly or with a packed sequence.
struct LayerOutput {
  Tensor y;
  nn::LstmState state;
};

nn::PackedSequence packed_input(const Case& test) {
  return nn::pack_padded_sequence(
      test.x(), test.tensor("lengths"),
      {.batch_first = true, .enforce_sorted = test.flag("enforce_sorted", true)});
}

LayerOutput call(const nn::LSTM& lstm, const Case& test) {
  if (test.flag("packed", false)) {
    const nn::PackedLstmOutput out = lstm.forward(packed_input(test), state_of(test));
    return {nn::pad_packed_sequence(out.output, {.batch_first = true}).output, out.state};
  }
  const nn::LstmOutput out = lstm.forward(test.x(), state_of(test));
  return {out.output, out.state};
}

LayerOutput call(const nn::GRU& gru, const Case& test) {
  if (test.flag("packed", false)) {
    const nn::PackedRnnOutput out = gru.forward(packed_input(test), test.optional_tensor("h_0"));
    return {nn::pad_packed_sequence(out.output, {.batch_first = true}).output, {out.h_n, {}}};
  }
  const nn::RnnOutput out = gru.forward(test.x(), test.optional_tensor("h_0"));
  return {out.output, {out.h_n, {}}};
}

LayerOutput call(const nn::LSTMCell& cell, const Case& test) {
  return {{}, cell.forward(test.x(), state_of(test))};
}

template <typename Cell>
LayerOutput call(const Cell& cell, const Case& test) {
  return {{}, {cell.forward(test.x(), test.optional_tensor("h_0")), {}}};
}

template <typename Float>
Outputs run(const Case& test, const char* type) {
  const std::shared_ptr<nn::Module> module = dynamic_module(test, type);
  const LayerOutput out = call(dynamic_cast<const Float&>(*module), test);
  Outputs outputs;
  if (out.y.defined()) outputs.set("y", out.y);
  outputs.set("h_n", out.state.h);
  if (out.state.c.defined()) outputs.set("c_n", out.state.c);
  Object weights = recurrent_parts(*module, RnnPart::Weights);
  if (!weights.items.empty()) outputs.set("weights", std::move(weights));
  return outputs;
}

const Registration kOps{
    {"dynamic_lstm", [](const Case& test) { return run<nn::LSTM>(test, "LSTM"); }},
    {"dynamic_gru", [](const Case& test) { return run<nn::GRU>(test, "GRU"); }},
    {"dynamic_lstm_cell", [](const Case& test) { return run<nn::LSTMCell>(test, "LSTMCell"); }},
    {"dynamic_gru_cell", [](const Case& test) { return run<nn::GRUCell>(test, "GRUCell"); }},
    {"dynamic_rnn_cell", [](const Case& test) { return run<nn::RNNCell>(test, "RNNCell"); }},
};

}  // namespace
}  // namespace quanta::conform
