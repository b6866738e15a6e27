// Recurrent layers: a product with all inputs, and the steps of one layer in one direction, become
// one LSTM, GRU or RNN with the layer's own weights.

#include <algorithm>
#include <array>
#include <utility>

#include "quanta/fusion/graph/detail/gate_order.h"
#include "quanta/fusion/graph/detail/tracer.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

namespace dynamic = nn::quantized::dynamic;

std::string onnx_name(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::Lstm:
      return "LSTM";
    case RecurrentKind::Gru:
      return "GRU";
    case RecurrentKind::RnnTanh:
    case RecurrentKind::RnnRelu:
      return "RNN";
  }
  return {};
}

/// How many sequences each step has, where all have as many; else 0.
std::int64_t batch_of(const Operation& steps) {
  const Attribute attribute = attribute_of(steps, "batch_sizes");
  const auto* sizes = std::get_if<std::vector<std::int64_t>>(&attribute);
  if (sizes == nullptr || sizes->empty()) return 0;
  const bool all = std::ranges::all_of(*sizes, [&](std::int64_t n) { return n == sizes->front(); });
  return all ? sizes->front() : 0;
}

bool is_zero(const Tensor& x) {
  const std::vector<float> values = x.to_float_vector();
  return std::ranges::all_of(values, [](float value) { return value == 0.0F; });
}

/// One layer of a dynamic LSTM or GRU with the same weights.
template <typename Layer>
std::shared_ptr<nn::Module> one_layer(const Layer& from, std::int64_t layer) {
  nn::RecurrentOptions options = from.options();
  std::vector<dynamic::GateWeights> weights;
  for (std::int64_t d = 0; d < from.num_directions(); ++d) {
    const nn::RecurrentWeights own = from.weights(layer, d);
    weights.push_back({dynamic::GateWeight(own.weight_ih, own.bias_ih),
                       dynamic::GateWeight(own.weight_hh, own.bias_hh)});
    options.input_size = own.weight_ih.size(1);
  }
  options.num_layers = 1;
  options.batch_first = false;
  options.dropout = 0.0;
  auto made = nn::make_module<Layer>(options, std::move(weights));
  made->set_reduce_range(from.reduce_range());
  made->eval();
  return made;
}

}  // namespace

std::vector<ValueId> Tracer::layer_weights(const nn::RecurrentLayer& module, std::int64_t layer,
                                           const std::string& base) {
  const auto gates = static_cast<std::size_t>(module.gates());
  std::vector<Tensor> w, r, b;
  for (std::int64_t d = 0; d < module.num_directions(); ++d) {
    const nn::RecurrentWeights own = module.weights(layer, d);
    w.push_back(in_onnx_order(own.weight_ih, gates));
    r.push_back(in_onnx_order(own.weight_hh, gates));
    if (!own.bias_ih.defined()) continue;
    const std::vector<Tensor> both{in_onnx_order(own.bias_ih, gates),
                                   in_onnx_order(own.bias_hh, gates)};
    b.push_back(cat(both, 0));
  }
  const auto constant = [&](const char* name, const std::vector<Tensor>& parts) {
    return parts.empty()
               ? kNone
               : graph_.add_constant(unique_value(fmt::format("{}.{}_l{}", base, name, layer)),
                                     stack(parts, 0));
  };
  std::vector<ValueId> ids{constant("weight_ih", w), constant("weight_hh", r), constant("bias", b)};
  for (const ValueId id : ids) {
    if (id != kNone) graph_.values[index_of(id)].type = OnnxType::Float;
  }
  return ids;
}

ValueId Tracer::joined_state(std::span<const Direction> directions, std::size_t input,
                             const std::string& base) {
  bool zero = true;
  for (const Direction& direction : directions) {
    const Tensor& state = direction.steps->inputs[input];
    zero = zero && (!state.defined() || (!made_.contains(state.storage().get()) && is_zero(state)));
  }
  if (zero) return kNone;
  std::vector<ValueId> parts;
  Dims sizes;
  for (const Direction& direction : directions) {
    const Tensor& state = direction.steps->inputs[input];
    sizes = {1, state.size(0), state.size(1)};
    ValueId id = value_of(state, *direction.steps);
    if (value(id).constant.defined()) {
      id = graph_.add_constant(unique_value(value(id).name), state.reshape(sizes));
    } else {
      id = reshaped(id, sizes, value(id).name);
    }
    parts.push_back(id);
  }
  if (parts.size() == 1) return parts[0];
  sizes[0] = static_cast<std::int64_t>(parts.size());
  return add_onnx("Concat", parts, sizes, base + "_state", {{"axis", std::int64_t{0}}});
}

bool Tracer::add_recurrent(const replay::Step& step) {
  const auto found = modules_.find(step.path);
  if (found == modules_.end()) return false;
  const auto* module = dynamic_cast<const nn::RecurrentLayer*>(found->second);
  const std::int64_t batch = batch_of(*step.operation);
  if (module == nullptr || batch == 0 || module->options().proj_size > 0) return false;
  const auto made = made_.find(step.inputs[0].storage().get());
  if (made == made_.end() || made->second.step == nullptr) return false;
  const replay::Step& product = *made->second.step;
  const std::string_view op = product.operation->name();
  if (op != "linear" && op != "linear_dynamic" && op != "linear_dynamic_fp16") return false;
  Layers& layers = recurrent_[step.path];
  const std::int64_t directions = module->num_directions();
  const std::int64_t layer = layers.next / directions % module->options().num_layers;
  ++layers.next;
  // The rows of all steps, step by step.
  const Tensor& rows = product.inputs[0];
  const ValueId sequence =
      value_of(rows.reshape({rows.size(0) / batch, batch, rows.size(1)}), product);
  layers.directions.push_back({&step, sequence});
  if (static_cast<std::int64_t>(layers.directions.size()) < directions) return true;
  const std::vector<Direction> all = std::exchange(layers.directions, {});
  write_layer(*module, layer, all);
  return true;
}

void Tracer::write_layer(const nn::RecurrentLayer& module, std::int64_t layer,
                         std::span<const Direction> directions) {
  const replay::Step& first = *directions[0].steps;
  const std::string base = first.path.empty() ? module.type_name() : first.path;
  const std::string name = fmt::format("{}_l{}", base, layer);
  const std::string op = onnx_name(module.kind());
  const auto count = static_cast<std::int64_t>(directions.size());
  const std::int64_t hidden = module.options().hidden_size;
  const Dims x = declared_dims(value(directions[0].x));
  std::vector<ValueId> inputs{directions[0].x, kNone, kNone, kNone, kNone};
  inputs.push_back(joined_state(directions, 1, name + "_h"));
  if (op == "LSTM") inputs.push_back(joined_state(directions, 2, name + "_c"));

  Node node{.name = unique_node(name), .op = op, .opset = kTraceOpset};
  node.row = op_table().find("", op, kTraceOpset);
  node.attributes["hidden_size"] = hidden;
  node.attributes["direction"] = std::string(count == 2 ? "bidirectional" : "forward");
  if (op == "GRU") node.attributes["linear_before_reset"] = std::int64_t{1};
  if (op == "RNN") {
    const std::string function = module.kind() == RecurrentKind::RnnRelu ? "Relu" : "Tanh";
    node.attributes["activations"] =
        std::vector<std::string>(static_cast<std::size_t>(count), function);
  }
  std::shared_ptr<nn::Module> child;
  if (const auto* lstm = dynamic_cast<const dynamic::LSTM*>(&module)) {
    child = one_layer(*lstm, layer);
  } else if (const auto* gru = dynamic_cast<const dynamic::GRU*>(&module)) {
    child = one_layer(*gru, layer);
  } else {
    const std::vector<ValueId> weights = layer_weights(module, layer, base);
    std::ranges::copy(weights, inputs.begin() + 1);
    std::vector<Tensor> constants;
    std::vector<OnnxType> types;
    for (const ValueId id : inputs) {
      constants.push_back(id == kNone ? Tensor() : value(id).constant);
      types.push_back(id == kNone ? OnnxType::Undefined : value(id).type);
    }
    node.inputs = inputs;
    if (node.row != nullptr) child = node.row->make_module(NodeCall(node, constants, types));
  }
  if (child != nullptr) {
    node.module = node.name;
    std::ranges::replace(node.module, '.', '_');
    children_.push_back({node.module, std::move(child)});
  }
  node.inputs = std::move(inputs);
  const ValueId y = add_value(name + "_Y", {x[0], count, x[1], hidden}, OnnxType::Float, {});
  const ValueId h = add_value(name + "_Y_h", {count, x[1], hidden}, OnnxType::Float, {});
  node.outputs = {y, h};
  ValueId c = kNone;
  if (op == "LSTM") {
    c = add_value(name + "_Y_c", {count, x[1], hidden}, OnnxType::Float, {});
    node.outputs.push_back(c);
  }
  graph_.nodes.push_back(std::move(node));

  for (std::int64_t d = 0; d < count; ++d) {
    const replay::Step& steps = *directions[static_cast<std::size_t>(d)].steps;
    // The part of one direction along an axis, and without that axis.
    const auto part = [&](ValueId whole, std::int64_t axis, const Tensor& result) {
      Dims sizes = declared_dims(value(whole));
      ValueId id = whole;
      const std::string own = fmt::format("{}_{}", value(whole).name, d);
      if (count > 1) {
        sizes[static_cast<std::size_t>(axis)] = 1;
        const std::array<std::int64_t, 1> begin{d}, end{d + 1}, axes{axis};
        id = add_onnx("Slice",
                      {id, add_integers(own + "_begin", begin), add_integers(own + "_end", end),
                       add_integers(own + "_axis", axes)},
                      sizes, own);
      }
      register_result(result, reshaped(id, result.sizes(), own), &steps);
    };
    part(y, 1, steps.outputs[0].reshape({x[0], x[1], hidden}));
    part(h, 0, steps.outputs[1]);
    if (c != kNone) part(c, 0, steps.outputs[2]);
  }
}

}  // namespace quanta::graph::detail
