// Recurrent layers, their cells and embeddings: how they are made and called.

#include <vector>

#include "float_modules.h"
#include "network.h"
#include "options.h"

namespace quanta::conform {
namespace {

const Parameter kNonlinearity{"nonlinearity", "tanh"};

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
    {"LSTM", factory<nn::LSTM, nn::RecurrentOptions>()},
    {"GRU", factory<nn::GRU, nn::RecurrentOptions>()},
    {"RNN", factory<nn::RNN, nn::RecurrentOptions, nn::RnnNonlinearity>({kNonlinearity})},
    {"LSTMCell", factory<nn::LSTMCell, nn::CellOptions>()},
    {"GRUCell", factory<nn::GRUCell, nn::CellOptions>()},
    {"RNNCell", factory<nn::RNNCell, nn::CellOptions, nn::RnnNonlinearity>({kNonlinearity})},
    {"Embedding", factory<nn::Embedding, nn::EmbeddingOptions>()},
    {"EmbeddingBag", factory<nn::EmbeddingBag, nn::EmbeddingBagOptions>()},
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
