#include "quanta/nn/rnn_cell.h"

#include <array>
#include <cmath>
#include <utility>

#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/recurrent.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/detail/sizes.h"

namespace quanta::nn {
namespace {

std::string_view kind_name(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::RnnTanh:
    case RecurrentKind::RnnRelu:
      return "RNNCell";
    case RecurrentKind::Lstm:
      return "LSTMCell";
    case RecurrentKind::Gru:
      return "GRUCell";
  }
  return "";
}

RecurrentKind rnn_kind(RnnNonlinearity nonlinearity) {
  return nonlinearity == RnnNonlinearity::Relu ? RecurrentKind::RnnRelu : RecurrentKind::RnnTanh;
}

}  // namespace

RecurrentCell::RecurrentCell(const CellOptions& options, RecurrentKind kind, FloatWeights weights)
    : options_(options), kind_(kind) {
  QUANTA_CHECK(options.input_size >= 1, "{}: input_size: expected at least 1, got {}",
               kind_name(kind), options.input_size);
  QUANTA_CHECK(options.hidden_size >= 1, "{}: hidden_size: expected at least 1, got {}",
               kind_name(kind), options.hidden_size);
  quanta::detail::checked_product(kind_name(kind), "hidden_size", {4, options.hidden_size});
  if (weights == FloatWeights::None) return;
  const std::int64_t rows = gates() * options.hidden_size;
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.hidden_size));
  weight_ih = detail::uniform({rows, options.input_size}, bound);
  weight_hh = detail::uniform({rows, options.hidden_size}, bound);
  if (options.bias) {
    bias_ih = detail::uniform({rows}, bound);
    bias_hh = detail::uniform({rows}, bound);
  }
  register_parameter("weight_ih", weight_ih);
  register_parameter("weight_hh", weight_hh);
  register_parameter("bias_ih", bias_ih);
  register_parameter("bias_hh", bias_hh);
}

LstmState RecurrentCell::step(const Tensor& x, const Tensor& h, const Tensor& c) const {
  const std::array<std::int64_t, 1> batch_sizes{x.sizes()[0]};
  const detail::RecurrentCall call{kind_name(kind_),     kind_,
                                   options_.hidden_size, batch_sizes,
                                   StepOrder::Forward,   is_training()};
  RecurrentResult result =
      detail::run_recurrent(call, {weight_ih, weight_hh, bias_ih, bias_hh, {}}, packed_, x, {h, c});
  return {std::move(result.h_n), std::move(result.c_n)};
}

LstmState RecurrentCell::run(const Tensor& x, const LstmState& state) const {
  const std::string_view op = kind_name(kind_);
  quanta::detail::require_tensor(op, x);
  QUANTA_CHECK(x.dim() == 1 || x.dim() == 2, "{}: x: expected 1 or 2 dimensions, got {}", op,
               x.sizes());
  detail::check_recurrent_input(op, x, options_.input_size, takes_quantized());
  const bool is_batched = x.dim() == 2;
  const bool is_lstm = kind_ == RecurrentKind::Lstm;
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = options_.hidden_size;
  LstmState start = state;
  if (detail::has_state(op, kind_, state)) {
    detail::check_recurrent_state(op, "h", state.h, sizes, takes_quantized());
    if (is_lstm) detail::check_recurrent_state(op, "c", state.c, sizes, takes_quantized());
  } else {
    start.h = zero_state(sizes, x);
    if (is_lstm) start.c = zero_state(sizes, x);
  }
  if (is_batched) return step(x, start.h, start.c);
  LstmState result =
      step(x.unsqueeze(0), start.h.unsqueeze(0), is_lstm ? start.c.unsqueeze(0) : Tensor());
  return {result.h.squeeze(0), is_lstm ? result.c.squeeze(0) : Tensor()};
}

LstmState RecurrentCell::call(const Tensor& x, const LstmState& state) const {
  const detail::PathScope scope(this);
  LstmState result = run(x, state);
  const std::shared_ptr<Observer>& observer = activation_post_process();
  if (observer != nullptr) result.h = observer->forward(result.h);
  return result;
}

std::string RecurrentCell::extra_repr() const {
  std::string text = fmt::format("{}, {}", options_.input_size, options_.hidden_size);
  if (!options_.bias) text += ", bias=False";
  if (kind_ == RecurrentKind::RnnRelu) text += ", nonlinearity=relu";
  return text;
}

RNNCell::RNNCell(const CellOptions& options, RnnNonlinearity nonlinearity)
    : RNNCell(options, nonlinearity, FloatWeights::Make) {}
RNNCell::RNNCell(const CellOptions& options, RnnNonlinearity nonlinearity, FloatWeights weights)
    : RecurrentCell(options, rnn_kind(nonlinearity), weights) {}
Tensor RNNCell::forward(const Tensor& x, const Tensor& h) const { return call(x, {h, {}}).h; }

LSTMCell::LSTMCell(const CellOptions& options) : LSTMCell(options, FloatWeights::Make) {}
LSTMCell::LSTMCell(const CellOptions& options, FloatWeights weights)
    : RecurrentCell(options, RecurrentKind::Lstm, weights) {}
LstmState LSTMCell::forward(const Tensor& x, const LstmState& state) const {
  return call(x, state);
}

GRUCell::GRUCell(const CellOptions& options) : GRUCell(options, FloatWeights::Make) {}
GRUCell::GRUCell(const CellOptions& options, FloatWeights weights)
    : RecurrentCell(options, RecurrentKind::Gru, weights) {}
Tensor GRUCell::forward(const Tensor& x, const Tensor& h) const { return call(x, {h, {}}).h; }

}  // namespace quanta::nn
