#include "quanta/nn/detail/recurrent.h"

#include <utility>

#include "quanta/runtime/check.h"

namespace quanta::nn::detail {
namespace {

std::string_view dtypes(bool takes_quantized) {
  return takes_quantized ? "Float32 or a quantized dtype" : "Float32";
}

void check_dtype(std::string_view op, std::string_view name, const Tensor& x,
                 bool takes_quantized) {
  QUANTA_CHECK(x.dtype() == DType::Float32 || (takes_quantized && x.is_quantized()),
               "{}: {}: expected {}, got {}{}", op, name, dtypes(takes_quantized), x.dtype(),
               x.is_quantized() ? " (is a DeQuantStub missing?)" : "");
}

// What the step loop relies on: the product's rows fill its buffers exactly.
void check_hidden_weight(std::string_view op, const RecurrentWeights& weights) {
  QUANTA_CHECK(weights.weight_ih.defined() && weights.weight_hh.defined(),
               "{}: weight_hh: expected weights, got an undefined tensor", op);
  const Dims& ih = weights.weight_ih.sizes();
  const Dims& hh = weights.weight_hh.sizes();
  QUANTA_CHECK(ih.size() == 2 && hh.size() == 2 && hh[0] == ih[0],
               "{}: weight_hh: expected as many rows as weight_ih {}, got {}", op, ih, hh);
}

PackedHidden pack_hidden(const Tensor& weight, const Tensor& bias) {
  return {float_hidden_product(weight, bias)};
}

}  // namespace

void check_recurrent_input(std::string_view op, const Tensor& x, std::int64_t features,
                           bool takes_quantized) {
  check_dtype(op, "x", x, takes_quantized);
  QUANTA_CHECK(x.size(-1) == features, "{}: x: expected {} features (input_size), got sizes {}", op,
               features, x.sizes());
}

void check_recurrent_state(std::string_view op, std::string_view name, const Tensor& state,
                           const Dims& sizes, bool takes_quantized) {
  check_dtype(op, name, state, takes_quantized);
  QUANTA_CHECK(state.sizes() == sizes, "{}: {}: expected sizes {}, got {}", op, name, sizes,
               state.sizes());
}

bool has_state(std::string_view op, RecurrentKind kind, const LstmState& state) {
  const bool is_lstm = kind == RecurrentKind::Lstm;
  QUANTA_CHECK(is_lstm || !state.c.defined(), "{}: c: expected none, got a tensor", op);
  QUANTA_CHECK(!is_lstm || state.h.defined() == state.c.defined(),
               "{}: {}: expected both h and c or none, got an undefined tensor", op,
               state.h.defined() ? "c" : "h");
  return state.h.defined();
}

RecurrentProducts recurrent_products(std::string_view op, const RecurrentWeights& weights,
                                     RecurrentCache& cache, KeepPacked keep) {
  check_hidden_weight(op, weights);
  const bool projects = weights.weight_hr.defined();
  const auto pack_input = [&] { return PackedLinear(weights.weight_ih, weights.bias_ih); };
  const auto pack_gates = [&] { return pack_hidden(weights.weight_hh, weights.bias_hh); };
  const auto pack_projection = [&] { return pack_hidden(weights.weight_hr, {}); };
  if (keep == KeepPacked::No) {
    return {pack_input(), pack_gates(), projects ? pack_projection() : PackedHidden{}};
  }
  RecurrentProducts products{
      cache.input.get(weights.weight_ih, weights.bias_ih, Fusion::None, pack_input),
      cache.hidden.get(weights.weight_hh, weights.bias_hh, Fusion::None, pack_gates),
      {}};
  if (projects) {
    products.projection =
        cache.projection.get(weights.weight_hr, {}, Fusion::None, pack_projection);
  }
  return products;
}

// oneDNN's RNN primitives are not used: with W_hh products through its matmul the step loop is as
// fast. LSTM and GRU, 2 layers of 512 units, input 256, 64 steps, on a 2-core Xeon with AVX-512:
// LSTM within 1 % at batch 1 and within 7 % at batch 8 (lstm_forward ahead), on one thread and two;
// GRU (lbr_gru_forward) level on one thread, the loop ahead by 35 % and 10 % on two. Sequences of
// different lengths, projections and int8 hidden states would need the loop anyhow.
RecurrentResult run_recurrent(RecurrentKind kind, std::int64_t hidden_size,
                              const RecurrentProducts& products, const Tensor& x,
                              std::span<const std::int64_t> batch_sizes, StepOrder order,
                              const LstmState& state) {
  const RecurrentSteps steps{kind,
                             hidden_size,
                             batch_sizes,
                             order,
                             products.hidden.product.get(),
                             products.projection.product.get()};
  return recurrent_steps(steps, products.input(x), state.h, state.c);
}

}  // namespace quanta::nn::detail
