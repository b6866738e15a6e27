#include "quanta/fusion/graph/detail/added_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace quanta::graph::detail {
namespace {

std::string unique(std::set<std::string, std::less<>>& taken, std::string_view base) {
  std::string name(base);
  for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

}  // namespace

AddedNodes::AddedNodes(const OnnxGraph& graph) {
  for (const OnnxValue& value : graph.inputs) value_names_.insert(value.name);
  for (const OnnxValue& value : graph.outputs) value_names_.insert(value.name);
  for (const OnnxTensor& weight : graph.initializers) value_names_.insert(weight.name);
  for (const OnnxNode& node : graph.nodes) {
    node_names_.insert(node.name);
    value_names_.insert(node.inputs.begin(), node.inputs.end());
    value_names_.insert(node.outputs.begin(), node.outputs.end());
  }
}

std::string AddedNodes::unique_value(std::string_view base) { return unique(value_names_, base); }

std::string AddedNodes::weight(std::string_view base, const Tensor& tensor, OnnxType type) {
  std::string name = unique_value(base);
  weights_.push_back({.name = name,
                      .type = holds(type, tensor.dtype()) ? type : onnx_type_of(tensor.dtype()),
                      .value = tensor});
  return name;
}

void AddedNodes::emit(std::string_view name, std::string_view op, std::vector<std::string> inputs,
                      std::vector<std::string> outputs, OnnxAttributes attributes,
                      std::string_view domain) {
  OnnxNode node;
  node.name = unique(node_names_, name);
  node.op_type = op;
  node.domain = domain;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.attributes = std::move(attributes);
  nodes_.push_back(std::move(node));
}

void AddedNodes::need(std::int64_t opset, std::string_view what) {
  if (opset <= needed_) return;
  needed_ = opset;
  needed_for_ = what;
}

std::vector<OnnxNode> AddedNodes::take_nodes() { return std::exchange(nodes_, {}); }
std::vector<OnnxTensor> AddedNodes::take_weights() { return std::exchange(weights_, {}); }

const OnnxValue* find_declared(const OnnxGraph& graph, const std::string& name) {
  for (const auto* values : {&graph.inputs, &graph.values, &graph.outputs}) {
    const auto found = std::ranges::find(*values, name, &OnnxValue::name);
    if (found != values->end()) return &*found;
  }
  return nullptr;
}

bool is_quantizable(OnnxType type) {
  return type == OnnxType::Float || type == OnnxType::Float16 || type == OnnxType::BFloat16 ||
         type == OnnxType::Double;
}

std::optional<std::int64_t> find_opset(const OnnxModel& model) {
  for (const char* domain : {"", "ai.onnx"}) {
    const auto found = model.opsets.find(domain);
    if (found != model.opsets.end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace quanta::graph::detail
