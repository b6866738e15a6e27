// LSTM and GRU in float, 2 layers of 512 units over 64 steps of 256 features. At batch 1 a step is
// a product of a matrix with a vector, so that what counts is how fast the hidden weights are read,
// from whichever cache holds them. dynamic_rnn_bench.cpp has int8 and float16 beside float.

#include <memory>

#include "op_bench.h"
#include "quanta/nn/rnn.h"

namespace quanta::bench {
namespace {

constexpr std::int64_t kInput = 256;
constexpr std::int64_t kHidden = 512;
constexpr std::int64_t kLayers = 2;
constexpr std::int64_t kSteps = 64;

// Weights read in a call: those of the input once, those of the hidden state in every step, one
// layer's again and again.
Work work_of(std::int64_t gates) {
  const auto input = static_cast<double>(gates * kHidden * (kInput + (kLayers - 1) * kHidden));
  const auto hidden = static_cast<double>(gates * kHidden * kHidden);
  return {.bytes = 4.0 * (input + kSteps * kLayers * hidden),
          .read_set = static_cast<std::size_t>(4.0 * hidden)};
}

template <typename Layer>
void add_layer(const std::string& name, std::int64_t gates) {
  for (const std::int64_t batch : {1, 8}) {
    add_benchmark(name + "/float32/batch" + std::to_string(batch), work_of(gates), [=] {
      const auto layer = nn::make_module<Layer>(nn::RecurrentOptions{
          .input_size = kInput, .hidden_size = kHidden, .num_layers = kLayers});
      layer->eval();
      const Tensor x = float_input({kSteps, batch, kInput});
      return std::pair([=] { (*layer)(x); }, nullptr);
    });
  }
}

const Family kFamily([] {
  add_layer<nn::LSTM>("lstm/2x512", 4);
  add_layer<nn::GRU>("gru/2x512", 3);
});

}  // namespace
}  // namespace quanta::bench
