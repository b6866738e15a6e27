#include "quanta/nn/rnn.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/nn/detail/layer_count.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/put_size.h"
#include "quanta/nn/detail/recurrent.h"
#include "quanta/nn/misc.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/detail/sizes.h"

namespace quanta::nn {
namespace {

void check_options(const std::string_view op, const RecurrentOptions& options, bool may_project) {
  QUANTA_CHECK(options.input_size >= 1, "{}: input_size: expected at least 1, got {}", op,
               options.input_size);
  QUANTA_CHECK(options.hidden_size >= 1, "{}: hidden_size: expected at least 1, got {}", op,
               options.hidden_size);
  detail::check_layer_count(op, options.num_layers);
  QUANTA_CHECK(options.dropout >= 0.0 && options.dropout <= 1.0,
               "{}: dropout: expected 0..1, got {}", op, options.dropout);
  QUANTA_CHECK(options.proj_size == 0 || may_project,
               "{}: proj_size: expected 0 (only LSTM has projections), got {}", op,
               options.proj_size);
  QUANTA_CHECK(options.proj_size >= 0 && options.proj_size < options.hidden_size,
               "{}: proj_size: expected less than hidden_size {}, got {}", op, options.hidden_size,
               options.proj_size);
  // Gates of both directions, in numbers that can be counted.
  quanta::detail::checked_product(op, "hidden_size", {8, options.hidden_size});
}

std::string_view kind_name(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::RnnTanh:
    case RecurrentKind::RnnRelu:
      return "RNN";
    case RecurrentKind::Lstm:
      return "LSTM";
    case RecurrentKind::Gru:
      return "GRU";
  }
  return "";
}

// A single part is handed through: joining quantized parts would copy it.
Tensor joined(std::span<const Tensor> parts, std::int64_t dim) {
  return parts.size() == 1 ? parts[0] : cat(parts, dim);
}
Tensor stacked(std::span<const Tensor> parts) {
  return parts.size() == 1 ? parts[0].unsqueeze(0) : stack(parts, 0);
}

LstmState reordered(std::string_view op, const LstmState& state, const Tensor& index,
                    std::int64_t batch) {
  if (!index.defined()) return state;
  QUANTA_CHECK(index.sizes() == Dims{batch},
               "{}: sorted_indices: expected one for each of {} sequences, got sizes {}", op, batch,
               index.sizes());
  const auto select = [&](const Tensor& x) {
    return x.defined() ? index_select(x, 1, index) : Tensor();
  };
  return {select(state.h), select(state.c)};
}

template <typename Change>
LstmState changed(const LstmState& state, Change&& change) {
  return {change(state.h), state.c.defined() ? change(state.c) : Tensor()};
}

}  // namespace

// RecurrentLayer --------------------------------------------------------------------------------

RecurrentLayer::RecurrentLayer(const RecurrentOptions& options, RecurrentKind kind,
                               FloatWeights weights)
    : options_(options), kind_(kind) {
  check_options(kind_name(kind), options, kind == RecurrentKind::Lstm);
  if (weights == FloatWeights::Make) make_weights();
}

// Layer by layer, in each the forward direction first; weights() counts on the order.
void RecurrentLayer::make_weights() {
  const std::int64_t rows = gates() * options_.hidden_size;
  const double bound = 1.0 / std::sqrt(static_cast<double>(options_.hidden_size));
  for (std::int64_t layer = 0; layer < options_.num_layers; ++layer) {
    const std::int64_t inputs = layer == 0 ? options_.input_size : output_size() * num_directions();
    for (std::int64_t direction = 0; direction < num_directions(); ++direction) {
      const auto add = [&](std::string_view name, const Dims& sizes) {
        add_parameter(fmt::format("{}_l{}{}", name, layer, direction == 1 ? "_reverse" : ""),
                      detail::uniform(sizes, bound));
      };
      add("weight_ih", {rows, inputs});
      add("weight_hh", {rows, output_size()});
      if (options_.bias) {
        add("bias_ih", {rows});
        add("bias_hh", {rows});
      }
      if (options_.proj_size > 0) add("weight_hr", {options_.proj_size, options_.hidden_size});
    }
  }
  packed_.resize(static_cast<std::size_t>(options_.num_layers * num_directions()));
}

RecurrentLayer::Weights RecurrentLayer::weights(std::int64_t layer, std::int64_t direction) const {
  QUANTA_SUPPORTED(!packed_.empty(), "{}: weights: expected a module with float weights, got {}",
                   kind_name(kind_), type_name());
  QUANTA_CHECK(layer >= 0 && layer < options_.num_layers, "{}: layer: expected 0..{}, got {}",
               kind_name(kind_), options_.num_layers - 1, layer);
  QUANTA_CHECK(direction >= 0 && direction < num_directions(),
               "{}: direction: expected 0..{}, got {}", kind_name(kind_), num_directions() - 1,
               direction);
  const std::size_t count = 2U + (options_.bias ? 2U : 0U) + (options_.proj_size > 0 ? 1U : 0U);
  std::size_t number = static_cast<std::size_t>(layer * num_directions() + direction) * count;
  Weights result{parameter_at(number), parameter_at(number + 1)};
  number += 2;
  if (options_.bias) {
    result.bias_ih = parameter_at(number++);
    result.bias_hh = parameter_at(number++);
  }
  if (options_.proj_size > 0) result.weight_hr = parameter_at(number);
  return result;
}

Tensor RecurrentLayer::forward(const Tensor& x) const { return run(x, {}).output; }

RecurrentLayer::StepsOutput RecurrentLayer::run_layer(std::int64_t layer, std::int64_t direction,
                                                      const Tensor& x,
                                                      std::span<const std::int64_t> batch_sizes,
                                                      const Tensor& h, const Tensor& c) const {
  const detail::RecurrentCall call{kind_name(kind_),
                                   kind_,
                                   options_.hidden_size,
                                   batch_sizes,
                                   direction == 1 ? StepOrder::Reverse : StepOrder::Forward,
                                   is_training()};
  detail::RecurrentCache& cache =
      packed_[static_cast<std::size_t>(layer * num_directions() + direction)];
  RecurrentResult result = detail::run_recurrent(call, weights(layer, direction), cache, x, {h, c});
  return {std::move(result.output), std::move(result.h_n), std::move(result.c_n)};
}

// x [sum of batch sizes, features]; a state of all layers, or none.
LstmOutput RecurrentLayer::run_layers(Tensor x, std::span<const std::int64_t> batch_sizes,
                                      const LstmState& state) const {
  const std::string_view op = kind_name(kind_);
  const bool is_lstm = kind_ == RecurrentKind::Lstm;
  const std::int64_t places = options_.num_layers * num_directions();
  const Dims h_sizes{places, batch_sizes[0], output_size()};
  const Dims c_sizes{places, batch_sizes[0], options_.hidden_size};
  LstmState start = state;
  if (detail::has_state(op, kind_, state)) {
    detail::check_recurrent_state(op, "h", state.h, h_sizes, takes_quantized());
    if (is_lstm) detail::check_recurrent_state(op, "c", state.c, c_sizes, takes_quantized());
  } else {
    start.h = zero_state(h_sizes, x);
    if (is_lstm) start.c = zero_state(c_sizes, x);
  }
  std::vector<Tensor> last_h, last_c;
  for (std::int64_t layer = 0; layer < options_.num_layers; ++layer) {
    if (layer > 0 && is_training() && options_.dropout > 0.0) {
      x = Dropout(options_.dropout).forward(x);
    }
    std::vector<Tensor> outputs;
    for (std::int64_t direction = 0; direction < num_directions(); ++direction) {
      const std::int64_t place = layer * num_directions() + direction;
      StepsOutput steps = run_layer(layer, direction, x, batch_sizes, start.h.select(0, place),
                                    is_lstm ? start.c.select(0, place) : Tensor());
      outputs.push_back(std::move(steps.output));
      last_h.push_back(std::move(steps.h));
      if (is_lstm) last_c.push_back(std::move(steps.c));
    }
    x = joined(outputs, 1);
  }
  return {x, {stacked(last_h), is_lstm ? stacked(last_c) : Tensor()}};
}

LstmOutput RecurrentLayer::run(const Tensor& x, const LstmState& state) const {
  const std::string_view op = kind_name(kind_);
  quanta::detail::require_tensor(op, x);
  QUANTA_CHECK(x.dim() == 2 || x.dim() == 3,
               "{}: x: expected 2 (one sequence) or 3 dimensions, got {}", op, x.sizes());
  detail::check_recurrent_input(op, x, options_.input_size, takes_quantized());
  const bool is_batched = x.dim() == 3;
  const bool swaps = is_batched && options_.batch_first;
  const Tensor by_step = swaps ? x.transpose(0, 1) : is_batched ? x : x.unsqueeze(1);
  const std::int64_t steps = by_step.sizes()[0];
  const std::int64_t batch = by_step.sizes()[1];
  QUANTA_CHECK(steps >= 1, "{}: x: expected at least one step, got sizes {}", op, x.sizes());
  const std::vector<std::int64_t> batch_sizes(static_cast<std::size_t>(steps), batch);

  LstmState batched = state;
  if (!is_batched) {
    const auto add_batch = [&](const Tensor& part) {
      QUANTA_CHECK(!part.defined() || part.dim() == 2,
                   "{}: state: expected 2 dimensions as x has no batch, got sizes {}", op,
                   part.sizes());
      return part.defined() ? part.unsqueeze(1) : part;
    };
    batched = changed(state, add_batch);
  }
  LstmOutput result =
      run_layers(by_step.reshape({steps * batch, options_.input_size}), batch_sizes, batched);
  result.output = result.output.view({steps, batch, result.output.sizes()[1]});
  if (swaps) result.output = result.output.transpose(0, 1);
  if (!is_batched) {
    result.output = result.output.squeeze(1);
    result.state = changed(result.state, [](const Tensor& part) { return part.squeeze(1); });
  }
  return result;
}

PackedLstmOutput RecurrentLayer::run(const PackedSequence& x, const LstmState& state) const {
  const std::string_view op = kind_name(kind_);
  const std::vector<std::int64_t> batch_sizes = detail::checked_batch_sizes(op, x);
  QUANTA_CHECK(x.data.dim() == 2, "{}: data: expected 2 dimensions, got sizes {}", op,
               x.data.sizes());
  detail::check_recurrent_input(op, x.data, options_.input_size, takes_quantized());
  const std::int64_t batch = batch_sizes[0];
  const LstmOutput result =
      run_layers(x.data, batch_sizes, reordered(op, state, x.sorted_indices, batch));
  PackedSequence output = x;
  output.data = result.output;
  return {std::move(output), reordered(op, result.state, x.unsorted_indices, batch)};
}

LstmOutput RecurrentLayer::call(const Tensor& x, const LstmState& state) const {
  const detail::PathScope scope(this);
  LstmOutput result = run(x, state);
  const std::shared_ptr<Observer>& observer = activation_post_process();
  if (observer != nullptr) result.output = observer->forward(result.output);
  return result;
}

PackedLstmOutput RecurrentLayer::call(const PackedSequence& x, const LstmState& state) const {
  const detail::PathScope scope(this);
  PackedLstmOutput result = run(x, state);
  const std::shared_ptr<Observer>& observer = activation_post_process();
  if (observer != nullptr) result.output.data = observer->forward(result.output.data);
  return result;
}

std::string RecurrentLayer::extra_repr() const {
  std::string text = fmt::format("{}, {}", options_.input_size, options_.hidden_size);
  if (options_.proj_size != 0) text += fmt::format(", proj_size={}", options_.proj_size);
  if (options_.num_layers != 1) text += fmt::format(", num_layers={}", options_.num_layers);
  if (!options_.bias) text += ", bias=False";
  if (options_.batch_first) text += ", batch_first=True";
  if (options_.dropout != 0.0) {
    text += fmt::format(", dropout={}", detail::python_float(options_.dropout));
  }
  if (options_.bidirectional) text += ", bidirectional=True";
  return text;
}

// RNN, LSTM, GRU --------------------------------------------------------------------------------

RecurrentOptions RecurrentLayer::with_sizes(std::int64_t input_size, std::int64_t hidden_size,
                                            RecurrentOptions more) {
  detail::put_size("RNN", "input_size", input_size, more.input_size);
  detail::put_size("RNN", "hidden_size", hidden_size, more.hidden_size);
  return more;
}

RNN::RNN(const RecurrentOptions& options, RnnNonlinearity nonlinearity)
    : RecurrentLayer(
          options,
          nonlinearity == RnnNonlinearity::Relu ? RecurrentKind::RnnRelu : RecurrentKind::RnnTanh,
          FloatWeights::Make) {}

RnnOutput RNN::forward(const Tensor& x, const Tensor& h_0) const {
  LstmOutput result = call(x, {h_0, {}});
  return {std::move(result.output), std::move(result.state.h)};
}
PackedRnnOutput RNN::forward(const PackedSequence& x, const Tensor& h_0) const {
  PackedLstmOutput result = call(x, {h_0, {}});
  return {std::move(result.output), std::move(result.state.h)};
}

LSTM::LSTM(const RecurrentOptions& options) : LSTM(options, FloatWeights::Make) {}
LSTM::LSTM(const RecurrentOptions& options, FloatWeights weights)
    : RecurrentLayer(options, RecurrentKind::Lstm, weights) {}

LstmOutput LSTM::forward(const Tensor& x, const LstmState& state) const { return call(x, state); }
PackedLstmOutput LSTM::forward(const PackedSequence& x, const LstmState& state) const {
  return call(x, state);
}

GRU::GRU(const RecurrentOptions& options) : GRU(options, FloatWeights::Make) {}
GRU::GRU(const RecurrentOptions& options, FloatWeights weights)
    : RecurrentLayer(options, RecurrentKind::Gru, weights) {}

RnnOutput GRU::forward(const Tensor& x, const Tensor& h_0) const {
  LstmOutput result = call(x, {h_0, {}});
  return {std::move(result.output), std::move(result.state.h)};
}
PackedRnnOutput GRU::forward(const PackedSequence& x, const Tensor& h_0) const {
  PackedLstmOutput result = call(x, {h_0, {}});
  return {std::move(result.output), std::move(result.state.h)};
}

}  // namespace quanta::nn
