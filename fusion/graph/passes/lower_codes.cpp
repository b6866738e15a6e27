#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/child_name.h"
#include "quanta/fusion/graph/passes/lowering.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/fusion/graph/run.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/quantize_linear.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// Operators that are worth an answer when they stay in float.
bool is_heavy(const Node& node) {
  constexpr std::array kHeavy{"Add", "Concat", "Conv", "ConvTranspose", "Gemm", "MatMul", "Mul"};
  return node.domain.empty() &&
         std::ranges::find(kHeavy, std::string_view(node.op)) != kHeavy.end();
}

/// Each element by itself, at most with others at its place.
bool is_pointwise(const Node& node) {
  constexpr std::array kOps{"Add", "Clip",  "Div", "LeakyRelu", "Max", "Min",
                            "Mul", "PRelu", "Pow", "Relu",      "Sub"};
  return is_plain(node) && node.domain.empty() &&
         (node.row->rule == CodeRule::Table ||
          std::ranges::find(kOps, std::string_view(node.op)) != kOps.end());
}

/// The one user of a value, where nobody else takes it.
const Node* only_user(const Graph& graph, const Uses& uses, ValueId id, NodeId& user) {
  if (id == kNone || !uses.used_once(id)) return nullptr;
  user = uses.users(id)[0];
  return &graph.nodes[index_of(user)];
}

}  // namespace

std::uint8_t code_of(double value, const Codes& codes) {
  const QTensor coded = quantized::quantize_linear(Tensor::scalar(value), codes.scale,
                                                   codes.zero_point, DType::QUInt8);
  return *static_cast<const std::uint8_t*>(coded.data_ptr());
}

std::shared_ptr<const ByteTable> codes_table(const Tensor& floats, const Codes& codes,
                                             bool torch_arithmetic) {
  const Tensor x = floats.contiguous();
  const Tensor coded =
      torch_arithmetic
          ? quantize_per_tensor(x, codes.scale, codes.zero_point, DType::QUInt8)
          : quantized::quantize_linear(x, codes.scale, codes.zero_point, DType::QUInt8);
  auto table = std::make_shared<ByteTable>();
  std::copy_n(static_cast<const std::uint8_t*>(coded.data_ptr()), table->size(), table->begin());
  return table;
}

std::optional<Wanted> Lowering::wanted(ValueId id) const {
  NodeId user = kNone;
  Wanted want;
  const Node* next = only_user(graph, uses, id, user);
  if (next == nullptr) return {};
  const Node* between = nullptr;
  if (is_op(*next, "Relu") || (is_op(*next, "Clip") && next->inputs[0] == id)) {
    between = next;
    want.consumed.push_back(user);
    next = only_user(graph, uses, next->outputs[0], user);
  }
  if (next == nullptr || !is_made(*next, "Quantize")) return {};
  want.consumed.push_back(user);
  want.result = next->outputs[0];
  want.codes = *codes(want.result);
  if (between == nullptr) return want;
  if (between->op == "Relu") {
    want.relu = true;
    return want;
  }
  // The bounds are inputs since opset 11, attributes before.
  const auto bound = [&](std::size_t i, std::string_view name, double otherwise) {
    if (i >= between->inputs.size() || between->inputs[i] == kNone) {
      return std::optional<double>(number_attribute(*between, name, otherwise));
    }
    const Tensor value = constant_floats(graph, between->inputs[i]);
    return value.defined() && value.numel() == 1 ? std::optional<double>(value.item())
                                                 : std::nullopt;
  };
  constexpr double kLargest = 3.0e38;
  const std::optional<double> low = bound(1, "min", -kLargest);
  const std::optional<double> high = bound(2, "max", kLargest);
  if (!low || !high || !(*low <= *high)) return {};
  want.low = code_of(*low, want.codes);
  want.high = code_of(*high, want.codes);
  return want;
}

ValueId Lowering::add_coded(std::string name, const Codes& codes) {
  return graph.add_value({.name = std::move(name), .codes = codes});
}

void Lowering::emit_clip(const Node& node, const Wanted& want, ValueId whole) {
  auto table = std::make_shared<ByteTable>();
  for (std::size_t i = 0; i < table->size(); ++i) {
    (*table)[i] = std::clamp(static_cast<std::uint8_t>(i), want.low, want.high);
  }
  emit(made_node(node.name + "_clip", "MapCodes",
                 quantized::map_codes_operation(table, want.codes.scale, want.codes.zero_point),
                 {whole}, {want.result}));
}

ValueId Lowering::floats(ValueId id) {
  if (id == kNone) return id;
  if (const auto at = dequantized_.find(id); at != dequantized_.end()) return at->second;
  if (const auto at = tables_.find(id); at != tables_.end()) {
    auto table = std::make_shared<FloatTable>();
    std::copy_n(static_cast<const float*>(at->second.floats.data_ptr()), table->size(),
                table->begin());
    emit(made_node(graph.values[index_of(id)].name + "_table", "MapCodesToFloat",
                   quantized::map_codes_to_float_operation(table), {at->second.source}, {id}));
    dequantized_[id] = id;
    return id;
  }
  if (!is_coded(id) || graph.is_constant(id)) return id;
  const std::string name = graph.values[index_of(id)].name;
  const ValueId result = graph.add_value({.name = name + "_dequantized", .type = OnnxType::Float});
  emit(made_node(name + "_dequantize", "Dequantize", make_operation("dequantize"), {id}, {result}));
  dequantized_[id] = result;
  return result;
}

std::optional<ValueTable> Lowering::table_of(ValueId id) const {
  if (const auto at = tables_.find(id); at != tables_.end()) return at->second;
  if (!is_coded(id)) return {};
  const Codes& own = *codes(id);
  const Tensor all = Tensor::arange(256).to(DType::UInt8);
  return ValueTable{
      id, dequantize_linear(all, Tensor::scalar(own.scale),
                            Tensor::scalar(static_cast<double>(own.zero_point), DType::UInt8))};
}

std::optional<ValueId> Lowering::coded_operand(ValueId id) {
  if (is_coded(id)) return id;
  if (const auto at = constants_.find(id); at != constants_.end()) return at->second;
  const std::optional<WeightCodes> weight = weight_codes(graph, id);
  if (!weight) return {};
  const std::optional<QTensor> constant = unsigned_constant(*weight);
  if (!constant) return {};
  const Quantizer& quantizer = constant->quantizer();
  const ValueId made =
      graph.add_value({.name = graph.values[index_of(id)].name + "_codes",
                       .constant = *constant,
                       .codes = Codes{DType::QUInt8, quantizer.scale, quantizer.zero_point}});
  constants_[id] = made;
  return made;
}

std::string Lowering::add_child(const Node& node, std::shared_ptr<nn::Module> module) {
  std::string name = child_name(node, children);
  children.push_back({name, std::move(module)});
  return name;
}

void Lowering::emit_child(const Node& node, std::shared_ptr<nn::Module> module, ValueId input,
                          ValueId output) {
  Node lowered{.name = node.name, .op = node.op, .domain = node.domain, .opset = node.opset};
  lowered.attributes = node.attributes;
  lowered.inputs = {input};
  lowered.outputs = {output};
  lowered.module = add_child(node, std::move(module));
  emit(std::move(lowered));
}

void Lowering::visit_quantize(const Node& node) {
  const ValueId source = node.inputs[0];
  const std::optional<ValueTable> table = table_of(source);
  if (!table) return emit(node);
  const Codes& wanted_codes = *codes(node.outputs[0]);
  const std::shared_ptr<const ByteTable> bytes =
      codes_table(table->floats, wanted_codes, torch_arithmetic);
  bool same = *codes(table->source) == wanted_codes;
  for (std::size_t i = 0; i < bytes->size() && same; ++i) same = (*bytes)[i] == i;
  if (same) {
    same_[node.outputs[0]] = table->source;
    return;
  }
  emit(made_node(node.name, "MapCodes",
                 quantized::map_codes_operation(bytes, wanted_codes.scale, wanted_codes.zero_point),
                 {table->source}, {node.outputs[0]}));
}

void Lowering::keep(Node node) {
  const bool coded = std::ranges::any_of(node.inputs, [&](ValueId id) { return is_coded(id); });
  if (coded && is_heavy(node)) {
    node.float_reason = reason.empty() ? "its result is wanted as floats" : reason;
  }
  const bool moves = moves_codes(graph, node) && is_coded(node.inputs[0]) &&
                     !node.outputs.empty() && is_coded(node.outputs[0]);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0 || !moves) node.inputs[i] = floats(node.inputs[i]);
  }
  emit(std::move(node));
}

void Lowering::visit(Node node) {
  for (ValueId& id : node.inputs) {
    if (const auto at = same_.find(id); at != same_.end()) id = at->second;
  }
  if (is_made(node, "Quantize")) return visit_quantize(node);
  if (node.domain == kQuantaDomain) return emit(std::move(node));
  reason.clear();
  if (is_plain(node) && node.domain.empty() &&
      (lower_conv(node) || lower_linear(node) || lower_matmul(node) || lower_table(node) ||
       lower_binary(node) || lower_concat(node) || lower_torch_mean(node) || lower_mean(node))) {
    return;
  }
  take_coded_table(node);
  keep(std::move(node));
}

void Lowering::take_coded_table(Node& node) {
  if (!is_op(node, "Gather") || node.inputs.size() != 2 || is_coded(node.inputs[0]) ||
      graph.is_output(node.outputs[0])) {
    return;
  }
  const std::optional<ValueId> rows = coded_operand(node.inputs[0]);
  if (!rows) return;
  node.inputs[0] = *rows;
  graph.values[index_of(node.outputs[0])].codes = codes(*rows);
}

void Lowering::run() {
  torch_arithmetic = std::ranges::any_of(graph.nodes, [](const Node& node) {
    return is_made(node, "Quantize") && node.operation->name() == "quantize_per_tensor";
  });
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!done[n]) visit(graph.nodes[n]);
  }
  for (ValueId& id : graph.outputs) {
    if (tables_.contains(id)) id = floats(id);
  }
  graph.nodes = std::move(nodes);
}

bool Lowering::lower_table(const Node& node) {
  if (!is_pointwise(node) || node.outputs.size() != 1 || node.outputs[0] == kNone) return false;
  std::vector<Tensor> inputs;
  std::vector<OnnxType> types;
  ValueId source = kNone;
  for (const ValueId id : node.inputs) {
    types.push_back(id == kNone ? OnnxType::Undefined : graph.values[index_of(id)].type);
    if (id == kNone) {
      inputs.emplace_back();
      continue;
    }
    if (const std::optional<ValueTable> table = table_of(id)) {
      if (source != kNone && source != table->source) return false;
      source = table->source;
      inputs.push_back(table->floats);
      types.back() = OnnxType::Float;
      continue;
    }
    // More dimensions than the value has would show in the result's.
    const Tensor constant = constant_floats(graph, id);
    if (!constant.defined() || constant.numel() != 1 || constant.dim() > 1) return false;
    inputs.push_back(constant);
  }
  if (source == kNone) return false;
  const Tensor result = run_node(node, nullptr, inputs, types)[0];
  if (result.dtype() != DType::Float32 || result.numel() != 256) return false;
  const ValueTable table{source, result.reshape({256}).contiguous()};
  if (!stays_coded(node, table)) tables_[node.outputs[0]] = table;
  return true;
}

bool Lowering::stays_coded(const Node& node, const ValueTable& table) {
  const ValueId output = node.outputs[0];
  if (graph.is_output(output)) return false;
  // A table that another one follows is one with it.
  const auto ends_here = [&](NodeId id) {
    const Node& user = graph.nodes[index_of(id)];
    if (is_made(user, "Quantize")) return false;
    return !is_pointwise(user) || std::ranges::any_of(user.inputs, [&](ValueId input) {
      if (input == kNone || input == output) return false;
      const Tensor constant = constant_floats(graph, input);
      return !constant.defined() || constant.numel() != 1;
    });
  };
  if (std::ranges::none_of(uses.users(output), ends_here)) return false;
  const Codes own = *codes(table.source);
  const std::shared_ptr<const ByteTable> bytes = codes_table(table.floats, own, torch_arithmetic);
  const std::optional<ValueTable> all = table_of(table.source);
  const auto* numbers = static_cast<const float*>(all->floats.data_ptr());
  const auto* answers = static_cast<const float*>(table.floats.data_ptr());
  bool same = true;
  for (std::size_t i = 0; i < bytes->size(); ++i) {
    if (numbers[(*bytes)[i]] != answers[i]) return false;
    same = same && (*bytes)[i] == i;
  }
  if (same) {
    same_[output] = table.source;
    return true;
  }
  graph.values[index_of(output)].codes = own;
  emit(made_node(node.name, "MapCodes",
                 quantized::map_codes_operation(bytes, own.scale, own.zero_point), {table.source},
                 {output}));
  return true;
}

bool lower_codes(Graph& graph, std::vector<nn::Module::NamedChild>& children) {
  const bool any =
      std::ranges::any_of(graph.values, [](const Value& value) { return value.codes.has_value(); });
  if (!any) return false;
  Lowering(graph, children).run();
  erase_dead(graph);
  return true;
}

}  // namespace quanta::graph
