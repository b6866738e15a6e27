#include "quanta/nn/quantizable/lstm.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/take_settings.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/detail/require_tensor.h"

namespace quanta::nn::quantizable {
namespace {

constexpr std::int64_t kGates = 4;
constexpr std::array<const char*, kGates> kGateNames = {"input", "forget", "cell", "output"};

Tensor zeros_like_input(const Dims& sizes, const Tensor& x) {
  const Tensor zeros = Tensor::zeros(sizes);
  // torch's parameters: a state of zeros is exact whatever they are.
  return x.is_quantized() ? quantize_per_tensor(zeros, 1.0, 0, x.dtype()) : zeros;
}

void copy_values(const Tensor& to, const Tensor& from) {
  if (to.defined()) to.copy_(from);
}

// The rows of gate `index` in a joined weight or bias.
Tensor gate_rows(const Tensor& joined, std::size_t index) {
  if (!joined.defined()) return joined;
  const std::int64_t rows = joined.size(0) / kGates;
  return joined.narrow(0, static_cast<std::int64_t>(index) * rows, rows);
}

const nn::Linear& float_linear(const Module& module) {
  const auto* linear = dynamic_cast<const nn::Linear*>(&module);
  QUANTA_SUPPORTED(linear != nullptr,
                   "LSTMCell: weights: expected a cell that is not converted, got one of {}",
                   module.type_name());
  return *linear;
}

std::shared_ptr<nn::Linear> linear(std::int64_t in, std::int64_t out, bool bias) {
  return make_module<nn::Linear>(
      LinearOptions{.in_features = in, .out_features = out, .bias = bias});
}

// Joins what was taken apart step by step; one part stays as it is.
Tensor joined(const std::vector<Tensor>& parts) {
  return parts.size() == 1 ? parts[0] : quanta::cat(parts, 0);
}

// One direction of a layer, and a layer, under torch's names.
class LSTMSingleLayer : public Module {
 public:
  Child<LSTMCell> cell;

  LSTMSingleLayer(const CellOptions& options, GateForm form) {
    register_module("cell", cell, options, form);
  }
  [[noreturn]] Tensor forward(const Tensor&) const override {
    throw UnsupportedError("LSTM: forward: expected a call of the LSTM, not of its layer");
  }
  std::string type_name() const override { return "_LSTMSingleLayer"; }
};

class LSTMLayer : public Module {
 public:
  Child<LSTMSingleLayer> layer_fw, layer_bw;

  LSTMLayer(const CellOptions& options, GateForm form, bool bidirectional) {
    register_module("layer_fw", layer_fw, options, form);
    if (bidirectional) register_module("layer_bw", layer_bw, options, form);
  }
  [[noreturn]] Tensor forward(const Tensor&) const override {
    throw UnsupportedError("LSTM: forward: expected a call of the LSTM, not of its layer");
  }
  std::string type_name() const override { return "_LSTMLayer"; }
};

RecurrentOptions checked(RecurrentOptions options) {
  QUANTA_SUPPORTED(options.proj_size == 0,
                   "quantizable::LSTM: proj_size: expected 0 (projections have no observable form; "
                   "a null QConfig leaves the module in float), got {}",
                   options.proj_size);
  options.dropout = 0.0;
  return options;
}

}  // namespace

// A ModuleDict whose modules are also found by number.
class LSTMCell::GateDict : public ModuleDict {
 public:
  const Module& gate(std::size_t index) const { return *child_at(index); }
  const nn::FloatFunctional& functional(std::size_t index) const {
    return static_cast<const nn::FloatFunctional&>(gate(index));
  }
  std::string type_name() const override { return "ModuleDict"; }

  static const GateDict& of(const Child<ModuleDict>& slot) {
    return static_cast<const GateDict&>(*slot.module());
  }
};

LSTMCell::LSTMCell(const CellOptions& options, GateForm form)
    : nn::LSTMCell(options, FloatWeights::None), form_(form) {
  const std::int64_t in = options.input_size;
  const std::int64_t hidden = options.hidden_size;
  if (form == GateForm::Joined) {
    register_module(
        "igates", igates_,
        LinearOptions{.in_features = in, .out_features = kGates * hidden, .bias = options.bias});
    register_module(
        "hgates", hgates_,
        LinearOptions{
            .in_features = hidden, .out_features = kGates * hidden, .bias = options.bias});
    register_module("gates", gates_);
  } else {
    register_slot("igates", split_igates_);
    register_slot("hgates", split_hgates_);
    register_slot("gates", split_gates_);
    const auto igates = make_module<GateDict>();
    const auto hgates = make_module<GateDict>();
    const auto gates = make_module<GateDict>();
    for (const char* name : kGateNames) {
      igates->insert(name, linear(in, hidden, options.bias));
      hgates->insert(name, linear(hidden, hidden, options.bias));
      gates->insert(name, make_module<nn::FloatFunctional>());
    }
    replace_child("igates", igates);
    replace_child("hgates", hgates);
    replace_child("gates", gates);
  }
  register_slot("input_gate", input_gate_);
  register_slot("forget_gate", forget_gate_);
  register_slot("cell_gate", cell_gate_);
  register_slot("output_gate", output_gate_);
  replace_child("input_gate", make_module<Sigmoid>());
  replace_child("forget_gate", make_module<Sigmoid>());
  replace_child("cell_gate", make_module<Tanh>());
  replace_child("output_gate", make_module<Sigmoid>());
  register_module("fgate_cx", fgate_cx_);
  register_module("igate_cgate", igate_cgate_);
  register_module("fgate_cx_igate_cgate", fgate_cx_igate_cgate_);
  register_module("ogate_cy", ogate_cy_);
}

void LSTMCell::set_weights(const RecurrentWeights& weights) {
  const auto set = [](const Module& module, const Tensor& weight, const Tensor& bias) {
    const nn::Linear& target = float_linear(module);
    copy_values(target.weight, weight);
    copy_values(target.bias, bias);
  };
  if (form_ == GateForm::Joined) {
    set(*igates_.module(), weights.weight_ih, weights.bias_ih);
    set(*hgates_.module(), weights.weight_hh, weights.bias_hh);
    return;
  }
  for (std::size_t i = 0; i < kGateNames.size(); ++i) {
    set(GateDict::of(split_igates_).gate(i), gate_rows(weights.weight_ih, i),
        gate_rows(weights.bias_ih, i));
    set(GateDict::of(split_hgates_).gate(i), gate_rows(weights.weight_hh, i),
        gate_rows(weights.bias_hh, i));
  }
}

std::shared_ptr<LSTMCell> LSTMCell::from_params(const RecurrentWeights& weights, GateForm form) {
  constexpr std::string_view kOp = "quantizable::LSTMCell.from_params";
  const Tensor& ih = weights.weight_ih;
  const Tensor& hh = weights.weight_hh;
  quanta::detail::require_tensor(kOp, ih, "weight_ih");
  quanta::detail::require_tensor(kOp, hh, "weight_hh");
  QUANTA_CHECK(ih.dim() == 2 && hh.dim() == 2 && hh.size(0) == kGates * hh.size(1) &&
                   ih.size(0) == hh.size(0),
               "{}: weights: expected weight_ih [4 * hidden, input] and weight_hh [4 * hidden, "
               "hidden], got {} and {}",
               kOp, ih.sizes(), hh.sizes());
  const bool has_bias = weights.bias_ih.defined();
  QUANTA_CHECK(has_bias == weights.bias_hh.defined() &&
                   (!has_bias || (weights.bias_ih.sizes() == Dims{ih.size(0)} &&
                                  weights.bias_hh.sizes() == Dims{ih.size(0)})),
               "{}: weights: expected two biases [{}] or none", kOp, ih.size(0));
  auto cell = make_module<LSTMCell>(
      CellOptions{.input_size = ih.size(1), .hidden_size = hh.size(1), .bias = has_bias}, form);
  cell->set_weights(weights);
  return cell;
}

std::shared_ptr<LSTMCell> LSTMCell::from_float(const Module& module, GateForm form) {
  const auto& source = nn::detail::expect_module<nn::LSTMCell>("quantizable::LSTMCell.from_float",
                                                               module, "LSTMCell");
  auto cell = from_params({.weight_ih = source.weight_ih,
                           .weight_hh = source.weight_hh,
                           .bias_ih = source.bias_ih,
                           .bias_hh = source.bias_hh,
                           .weight_hr = {}},
                          form);
  nn::detail::take_settings(*cell, source);
  return cell;
}

RecurrentWeights LSTMCell::weights() const {
  if (form_ == GateForm::Joined) {
    const nn::Linear& input = float_linear(*igates_.module());
    const nn::Linear& hidden = float_linear(*hgates_.module());
    return {input.weight, hidden.weight, input.bias, hidden.bias, {}};
  }
  const auto all = [](const Child<ModuleDict>& slot, Tensor nn::Linear::*member) {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < kGateNames.size(); ++i) {
      parts.push_back(float_linear(GateDict::of(slot).gate(i)).*member);
    }
    return parts[0].defined() ? quanta::cat(parts, 0) : Tensor();
  };
  return {all(split_igates_, &nn::Linear::weight),
          all(split_hgates_, &nn::Linear::weight),
          all(split_igates_, &nn::Linear::bias),
          all(split_hgates_, &nn::Linear::bias),
          {}};
}

LSTMCell::InputGates LSTMCell::InputGates::rows(std::int64_t first, std::int64_t count) const {
  InputGates result;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].defined()) result.parts[i] = parts[i].narrow(0, first, count);
  }
  return result;
}

LSTMCell::InputGates LSTMCell::input_gates(const Tensor& x) const {
  if (form_ == GateForm::Joined) return {{igates_(x)}};
  InputGates result;
  for (std::size_t i = 0; i < result.parts.size(); ++i) {
    result.parts[i] = GateDict::of(split_igates_).gate(i)(x);
  }
  return result;
}

bool LSTMCell::is_unwatched() const {
  if (form_ == GateForm::Joined) return igates_.module()->is_plain_call();
  const GateDict& gates = GateDict::of(split_igates_);
  for (std::size_t i = 0; i < kGateNames.size(); ++i) {
    if (!gates.gate(i).is_plain_call()) return false;
  }
  return true;
}

std::array<Tensor, 4> LSTMCell::gate_sums(const InputGates& input, const Tensor& h) const {
  std::array<Tensor, 4> sums;
  if (form_ == GateForm::Joined) {
    const Tensor all = gates_->add(input.parts[0], hgates_(h));
    const std::vector<Tensor> parts = chunk(all, kGates, 1);
    std::copy(parts.begin(), parts.end(), sums.begin());
    return sums;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = GateDict::of(split_gates_)
                  .functional(i)
                  .add(input.parts[i], GateDict::of(split_hgates_).gate(i)(h));
  }
  return sums;
}

LstmState LSTMCell::step(const InputGates& input, const Tensor& h, const Tensor& c) const {
  const nn::detail::PathScope scope(this);
  const std::array<Tensor, 4> sums = gate_sums(input, h);
  const Tensor i = input_gate_(sums[0]);
  const Tensor f = forget_gate_(sums[1]);
  const Tensor g = cell_gate_(sums[2]);
  const Tensor o = output_gate_(sums[3]);
  const Tensor next = fgate_cx_igate_cgate_->add(fgate_cx_->mul(f, c), igate_cgate_->mul(i, g));
  return {ogate_cy_->mul(o, quanta::tanh(next)), next};
}

LstmState LSTMCell::step(const Tensor& x, const Tensor& h, const Tensor& c) const {
  return step(input_gates(x), h, c);
}

Tensor LSTMCell::zero_state(const Dims& sizes, const Tensor& x) const {
  return zeros_like_input(sizes, x);
}

LSTM::LSTM(const RecurrentOptions& options, GateForm form)
    : nn::LSTM(checked(options), FloatWeights::None), form_(form) {
  register_module("layers", layers_);
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer) {
    // A later layer reads both directions. (torch's constructor builds it for one; its from_float
    // repairs that.)
    const std::int64_t inputs =
        layer == 0 ? options.input_size : num_directions() * options.hidden_size;
    layers_->push_back(make_module<LSTMLayer>(
        CellOptions{.input_size = inputs, .hidden_size = options.hidden_size, .bias = options.bias},
        form, options.bidirectional));
  }
}

std::shared_ptr<LSTM> LSTM::from_float(const Module& module, GateForm form) {
  const auto& source =
      nn::detail::expect_module<nn::LSTM>("quantizable::LSTM.from_float", module, "LSTM");
  auto result = make_module<LSTM>(source.options(), form);
  for (std::int64_t layer = 0; layer < source.options().num_layers; ++layer) {
    for (std::int64_t direction = 0; direction < source.num_directions(); ++direction) {
      auto& place = dynamic_cast<LSTMLayer&>(result->layer_at(layer));
      (direction == 0 ? place.layer_fw : place.layer_bw)
          ->replace_child("cell", LSTMCell::from_params(source.weights(layer, direction), form));
    }
  }
  nn::detail::take_settings(*result, source);
  return result;
}

Module& LSTM::layer_at(std::int64_t layer) const {
  return (*layers_.operator->())[static_cast<std::size_t>(layer)];
}

const LSTMCell& LSTM::cell(std::int64_t layer, std::int64_t direction) const {
  QUANTA_CHECK(layer >= 0 && layer < options().num_layers, "LSTM: layer: expected 0..{}, got {}",
               options().num_layers - 1, layer);
  QUANTA_CHECK(direction >= 0 && direction < num_directions(),
               "LSTM: direction: expected 0..{}, got {}", num_directions() - 1, direction);
  const auto& place = static_cast<const LSTMLayer&>(layer_at(layer));
  return *(direction == 0 ? place.layer_fw : place.layer_bw)->cell.operator->();
}

RecurrentWeights LSTM::weights(std::int64_t layer, std::int64_t direction) const {
  return cell(layer, direction).weights();
}

Tensor LSTM::zero_state(const Dims& sizes, const Tensor& x) const {
  return zeros_like_input(sizes, x);
}

RecurrentLayer::StepsOutput LSTM::run_layer(std::int64_t layer, std::int64_t direction,
                                            const Tensor& x,
                                            std::span<const std::int64_t> batch_sizes,
                                            const Tensor& h, const Tensor& c) const {
  const LSTMCell& unit = cell(layer, direction);
  const std::size_t steps = batch_sizes.size();
  std::vector<std::int64_t> first_rows(steps, 0);
  for (std::size_t t = 1; t < steps; ++t) {
    first_rows[t] = first_rows[t - 1] + batch_sizes[t - 1];
  }
  // One product for all steps, unless observers are to see the steps one by one, as torch's do.
  const LSTMCell::InputGates all =
      unit.is_unwatched() ? unit.input_gates(x) : LSTMCell::InputGates{};
  std::vector<Tensor> outputs(steps);
  // Forwards, sequences that end leave their states behind, the shortest first; backwards, they
  // join with their initial states when their last step is reached.
  std::vector<LstmState> ended;
  const bool reverse = direction == 1;
  const std::int64_t first_batch = reverse ? batch_sizes[steps - 1] : batch_sizes[0];
  LstmState state{h.narrow(0, 0, first_batch), c.narrow(0, 0, first_batch)};
  for (std::size_t i = 0; i < steps; ++i) {
    const std::size_t t = reverse ? steps - 1 - i : i;
    const std::int64_t rows = batch_sizes[t];
    const std::int64_t running = state.h.size(0);
    if (rows < running) {
      ended.push_back(
          {state.h.narrow(0, rows, running - rows), state.c.narrow(0, rows, running - rows)});
      state = {state.h.narrow(0, 0, rows), state.c.narrow(0, 0, rows)};
    } else if (rows > running) {
      state = {joined({state.h, h.narrow(0, running, rows - running)}),
               joined({state.c, c.narrow(0, running, rows - running)})};
    }
    const LSTMCell::InputGates input = all.parts[0].defined()
                                           ? all.rows(first_rows[t], rows)
                                           : unit.input_gates(x.narrow(0, first_rows[t], rows));
    state = unit.step(input, state.h, state.c);
    outputs[t] = state.h;
  }
  std::vector<Tensor> last_h{state.h};
  std::vector<Tensor> last_c{state.c};
  for (std::size_t i = ended.size(); i-- > 0;) {
    last_h.push_back(ended[i].h);
    last_c.push_back(ended[i].c);
  }
  return {joined(outputs), joined(last_h), joined(last_c)};
}

}  // namespace quanta::nn::quantizable
