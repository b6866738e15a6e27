#include "quanta/nn/detail/recurrent.h"

#include <algorithm>
#include <limits>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/operation.h"

namespace quanta::nn::detail {
namespace {

std::string_view dtypes(bool takes_quantized) {
  return takes_quantized ? "Float32 or a quantized dtype" : "Float32";
}

void check_dtype(std::string_view op, std::string_view name, const Tensor& x,
                 bool takes_quantized) {
  // Float64 is for proofs of gradients.
  const bool is_float = x.dtype() == DType::Float32 || x.dtype() == DType::Float64;
  QUANTA_CHECK(is_float || (takes_quantized && x.is_quantized()), "{}: {}: expected {}, got {}{}",
               op, name, dtypes(takes_quantized), x.dtype(),
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

// oneDNN's RNN primitives are not used: with W_hh products through its matmul the step loop is as
// fast. LSTM and GRU, 2 layers of 512 units, input 256, 64 steps, on a 2-core Xeon with AVX-512:
// LSTM within 1 % at batch 1 and within 7 % at batch 8 (lstm_forward ahead), on one thread and two;
// GRU (lbr_gru_forward) level on one thread, the loop ahead by 35 % and 10 % on two. Sequences of
// different lengths, projections and int8 hidden states would need the loop anyhow.
RecurrentResult run_packed(RecurrentSteps steps, const RecurrentWeights& weights,
                           RecurrentCache& cache, const Tensor& x, const LstmState& state) {
  const PackedLinear input = cache.input.get(weights.weight_ih, weights.bias_ih, Fusion::None, [&] {
    return PackedLinear(weights.weight_ih, weights.bias_ih);
  });
  const PackedHidden hidden =
      cache.hidden.get(weights.weight_hh, weights.bias_hh, Fusion::None,
                       [&] { return pack_hidden(weights.weight_hh, weights.bias_hh); });
  PackedHidden projection;
  if (weights.weight_hr.defined()) {
    projection = cache.projection.get(weights.weight_hr, {}, Fusion::None,
                                      [&] { return pack_hidden(weights.weight_hr, {}); });
  }
  steps.hidden = hidden.product.get();
  steps.projection = projection.product.get();
  return recurrent_steps(steps, input(x), state.h, state.c);
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

std::vector<std::int64_t> checked_batch_sizes(std::string_view op, const PackedSequence& sequence) {
  const Tensor& given = sequence.batch_sizes;
  QUANTA_CHECK(
      given.defined() && given.dtype() == DType::Int64 && given.dim() == 1 && given.numel() > 0,
      "{}: batch_sizes: expected Int64 [steps] of one step or more, got {}", op,
      given.defined() ? to_string(given) : "an undefined tensor");
  std::vector<std::int64_t> sizes = given.to_int64_vector();
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    QUANTA_CHECK(sizes[i] >= 1 && (i == 0 || sizes[i] <= sizes[i - 1]),
                 "{}: batch_sizes: expected numbers >= 1 that do not grow, got {} in step {}", op,
                 sizes[i], i);
    // Beyond any tensor: no data fits then.
    sum += std::min(sizes[i], std::numeric_limits<std::int64_t>::max() - sum);
  }
  const Tensor& data = sequence.data;
  quanta::detail::require_tensor(op, data, "data");
  QUANTA_CHECK(data.dim() >= 1 && data.size(0) == sum,
               "{}: data: expected sizes [{}, ...] (the sum of batch_sizes), got {}", op, sum,
               data.sizes());
  return sizes;
}

namespace {

// All steps of a layer, from x, h, c and the layer's weights: with packed weights, or with the
// weights as they are where a gradient is asked for.
struct RecurrentLayer final : ComposedOp<RecurrentLayer> {
  static constexpr std::string_view kName = "recurrent_layer";
  static constexpr ArgumentCount kArguments{8};
  const RecurrentSteps* steps = nullptr;
  const RecurrentWeights* weights = nullptr;
  RecurrentCache* cache = nullptr;  // null: no packed weights

  std::vector<Tensor> compose(const Arguments& in) const override {
    const LstmState state{in[1], in[2]};
    const RecurrentResult result =
        cache != nullptr
            ? run_packed(*steps, *weights, *cache, in[0], state)
            : recurrent_steps(*steps, {weights->weight_hh, weights->bias_hh, weights->weight_hr},
                              linear(in[0], weights->weight_ih, weights->bias_ih), state.h,
                              state.c);
    return {result.output, result.h_n, result.c_n};
  }
  std::shared_ptr<const Operation> for_gradient(std::uint64_t) const override {
    auto form = std::make_shared<RecurrentLayer>(*this);
    form->cache = nullptr;
    return form;
  }
};

}  // namespace

RecurrentResult run_recurrent(const RecurrentCall& call, const RecurrentWeights& weights,
                              RecurrentCache& cache, const Tensor& x, const LstmState& state) {
  check_hidden_weight(call.op, weights);
  RecurrentSteps steps;
  steps.kind = call.kind;
  steps.hidden_size = call.hidden_size;
  steps.batch_sizes = call.batch_sizes;
  steps.order = call.order;
  RecurrentLayer layer;
  layer.steps = &steps;
  layer.weights = &weights;
  // In train mode weights change from call to call; Float64 has no packed form, and weights on a
  // device are what its kernels read.
  const bool is_packed = x.dtype() == DType::Float32 && weights.weight_hh.device().is_cpu();
  if (!call.is_training && is_packed) layer.cache = &cache;
  Results results = run_all(layer, x, state.h, state.c, weights.weight_ih, weights.weight_hh,
                            weights.bias_ih, weights.bias_hh, weights.weight_hr);
  return {results[0], results[1], results[2]};
}

}  // namespace quanta::nn::detail
