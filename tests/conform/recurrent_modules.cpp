// Recurrent layers, their cells and embeddings: how they are made and called.

#include <memory>
#include <string>

#include "float_modules.h"
#include "network.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"

namespace quanta::conform {
namespace {

using Module = std::shared_ptr<nn::Module>;

nn::RecurrentOptions recurrent_options(const Arguments& arguments) {
  nn::RecurrentOptions options;
  options.input_size = arguments.integer("input_size");
  options.hidden_size = arguments.integer("hidden_size");
  options.num_layers = arguments.integer("num_layers", options.num_layers);
  options.bias = arguments.flag("bias", options.bias);
  options.batch_first = arguments.flag("batch_first", options.batch_first);
  options.dropout = arguments.number("dropout", options.dropout);
  options.bidirectional = arguments.flag("bidirectional", options.bidirectional);
  options.proj_size = arguments.integer("proj_size", options.proj_size);
  return options;
}

nn::CellOptions cell_options(const Arguments& arguments) {
  nn::CellOptions options;
  options.input_size = arguments.integer("input_size");
  options.hidden_size = arguments.integer("hidden_size");
  options.bias = arguments.flag("bias", options.bias);
  return options;
}

nn::RnnNonlinearity nonlinearity(const Arguments& arguments) {
  return arguments.text("nonlinearity", "tanh") == "relu" ? nn::RnnNonlinearity::Relu
                                                          : nn::RnnNonlinearity::Tanh;
}

template <typename T>
Module make_layer(const Arguments& arguments) {
  return nn::make_module<T>(recurrent_options(arguments));
}
template <typename T>
Module make_cell(const Arguments& arguments) {
  return nn::make_module<T>(cell_options(arguments));
}
Module make_rnn(const Arguments& arguments) {
  return nn::make_module<nn::RNN>(recurrent_options(arguments), nonlinearity(arguments));
}
Module make_rnn_cell(const Arguments& arguments) {
  return nn::make_module<nn::RNNCell>(cell_options(arguments), nonlinearity(arguments));
}

template <typename Options>
Options table_options(const Arguments& arguments) {
  Options options;
  options.num_embeddings = arguments.integer("num_embeddings");
  options.embedding_dim = arguments.integer("embedding_dim");
  constexpr std::int64_t kNone = -1;
  const std::int64_t padding = arguments.integer("padding_idx", kNone);
  if (padding != kNone) options.padding_idx = padding;
  return options;
}

Module make_embedding(const Arguments& arguments) {
  return nn::make_module<nn::Embedding>(table_options<nn::EmbeddingOptions>(arguments));
}

Module make_embedding_bag(const Arguments& arguments) {
  auto options = table_options<nn::EmbeddingBagOptions>(arguments);
  const std::string mode = arguments.text("mode", "mean");
  if (mode == "sum") {
    options.mode = nn::EmbeddingBagMode::Sum;
  } else if (mode == "max") {
    options.mode = nn::EmbeddingBagMode::Max;
  } else if (mode != "mean") {
    throw FormatError("args: mode: unknown value '" + mode + "'");
  }
  options.include_last_offset = arguments.flag("include_last_offset", options.include_last_offset);
  return nn::make_module<nn::EmbeddingBag>(options);
}

nn::LstmState state_of(const ModuleCall& call) {
  if (!call.has(1)) return {};
  if (call.inputs[1].size() != 2) throw FormatError("inputs: x1: expected a tuple (h, c)");
  return {call.inputs[1][0], call.inputs[1][1]};
}

std::vector<Tensor> call_lstm(const ModuleCall& call) {
  const nn::LstmOutput result = call.as<nn::LSTM>().forward(call.tensor(0), state_of(call));
  return {result.output, result.state.h, result.state.c};
}

template <typename T>
std::vector<Tensor> call_layer(const ModuleCall& call) {
  const nn::RnnOutput result = call.as<T>().forward(call.tensor(0), call.optional_tensor(1));
  return {result.output, result.h_n};
}

std::vector<Tensor> call_lstm_cell(const ModuleCall& call) {
  const nn::LstmState result = call.as<nn::LSTMCell>().forward(call.tensor(0), state_of(call));
  return {result.h, result.c};
}

template <typename T>
std::vector<Tensor> call_cell(const ModuleCall& call) {
  return {call.as<T>().forward(call.tensor(0), call.optional_tensor(1))};
}

std::vector<Tensor> call_embedding_bag(const ModuleCall& call) {
  return {call.as<nn::EmbeddingBag>().forward(call.tensor(0), call.optional_tensor(1),
                                              call.optional_tensor(2))};
}

const ModuleRegistration kTypes{
    {"LSTM", make_layer<nn::LSTM>},
    {"GRU", make_layer<nn::GRU>},
    {"RNN", make_rnn},
    {"LSTMCell", make_cell<nn::LSTMCell>},
    {"GRUCell", make_cell<nn::GRUCell>},
    {"RNNCell", make_rnn_cell},
    {"Embedding", make_embedding},
    {"EmbeddingBag", make_embedding_bag},
};

const ForwardRegistration kForwards{
    {"LSTM", call_lstm},
    {"GRU", call_layer<nn::GRU>},
    {"RNN", call_layer<nn::RNN>},
    {"LSTMCell", call_lstm_cell},
    {"GRUCell", call_cell<nn::GRUCell>},
    {"RNNCell", call_cell<nn::RNNCell>},
    {"EmbeddingBag", call_embedding_bag},
};

}  // namespace
}  // namespace quanta::conform
