#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

bool is_narrow(const Tensor& x) {
  return x.defined() && (x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16);
}

/// A layer whose weight, and bias if it has one, are constants of 16-bit floats.
bool has_narrow_weight(const Graph& graph, const Node& node) {
  constexpr std::array<std::string_view, 4> kLayers{"Conv", "ConvTranspose", "Gemm", "MatMul"};
  if (!is_plain(node) || !node.domain.empty() || node.inputs.size() < 2 ||
      node.outputs.size() != 1 || std::ranges::find(kLayers, node.op) == kLayers.end()) {
    return false;
  }
  if (node.inputs[0] == kNone || graph.is_constant(node.inputs[0])) return false;
  bool narrow = is_narrow(constant_input(graph, node, 1));
  for (std::size_t i = 2; i < node.inputs.size(); ++i) {
    narrow = narrow && (node.inputs[i] == kNone || is_narrow(constant_input(graph, node, i)));
  }
  return narrow;
}

Node cast_node(const Node& layer, std::string_view suffix, OnnxType to) {
  Node cast{.name = layer.name + std::string(suffix), .op = "Cast", .opset = layer.opset};
  cast.row = op_table().find("", cast.op, cast.opset);
  cast.attributes["to"] = static_cast<std::int64_t>(to);
  return cast;
}

}  // namespace

bool widen_layers(Graph& graph) {
  std::vector<Node> nodes;
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (!has_narrow_weight(graph, node)) {
      nodes.push_back(std::move(node));
      continue;
    }
    changed = true;
    const DType dtype = graph.values[index_of(node.inputs[1])].constant.dtype();
    const auto between = [&](std::string_view suffix) {
      return graph.add_value({.name = graph.unique_value_name(node.name + std::string(suffix)),
                              .type = OnnxType::Float});
    };
    Node wide = cast_node(node, "_widen", OnnxType::Float);
    Node narrow = cast_node(node, "_narrow", onnx_type_of(dtype));
    wide.inputs = {node.inputs[0]};
    wide.outputs = {between("_x")};
    narrow.outputs = node.outputs;
    narrow.inputs = {between("_y")};
    node.inputs[0] = wide.outputs[0];
    node.outputs = narrow.inputs;
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      const Value& value = graph.values[index_of(node.inputs[i])];
      const Tensor floats = value.constant.to(DType::Float32);
      node.inputs[i] = graph.add_constant(graph.unique_value_name(value.name + "_wide"), floats);
    }
    nodes.push_back(std::move(wide));
    nodes.push_back(std::move(node));
    nodes.push_back(std::move(narrow));
  }
  graph.nodes = std::move(nodes);
  return erase_dead(graph) || changed;
}

}  // namespace quanta::graph
