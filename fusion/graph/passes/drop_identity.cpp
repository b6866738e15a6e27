#include <string_view>

#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

/// The mask of Dropout is not asked for, and it does not train.
bool is_plain_dropout(const Graph& graph, const Node& node) {
  if (node.op != "Dropout" || (node.outputs.size() > 1 && node.outputs[1] != kNone)) return false;
  if (node.inputs.size() < 3 || node.inputs[2] == kNone) return true;
  const Tensor& training = graph.values[static_cast<std::size_t>(node.inputs[2])].constant;
  return training.defined() && training.numel() == 1 && training.item() == 0.0;
}

/// Known element types that are the same on both sides.
bool is_same_cast(const Graph& graph, const Node& node) {
  if (node.op != "Cast") return false;
  const OnnxType from = graph.values[static_cast<std::size_t>(node.inputs[0])].type;
  const OnnxType to = graph.values[static_cast<std::size_t>(node.outputs[0])].type;
  return from != OnnxType::Undefined && from == to;
}

}  // namespace

bool drop_identity(Graph& graph) {
  std::vector<Node> kept;
  std::vector<std::pair<ValueId, ValueId>> renamed;
  for (Node& node : graph.nodes) {
    const bool plain = node.domain.empty() && node.operation == nullptr && node.module.empty() &&
                       !node.inputs.empty() && node.inputs[0] != kNone && !node.outputs.empty() &&
                       node.outputs[0] != kNone;
    const bool drops = plain && (node.op == "Identity" || is_plain_dropout(graph, node) ||
                                 is_same_cast(graph, node));
    // Outputs keep their names, so an input cannot take the place of one.
    const bool between = drops && graph.is_output(node.outputs[0]) &&
                         (graph.is_input(node.inputs[0]) || graph.is_output(node.inputs[0]) ||
                          graph.is_constant(node.inputs[0]));
    if (!drops || between) {
      kept.push_back(std::move(node));
    } else {
      renamed.emplace_back(node.outputs[0], node.inputs[0]);
    }
  }
  graph.nodes = std::move(kept);
  // The last first: what it takes may itself be dropped.
  for (auto pair = renamed.rbegin(); pair != renamed.rend(); ++pair) {
    graph.replace_all_uses(pair->first, pair->second);
  }
  return erase_dead(graph) || !renamed.empty();
}

}  // namespace quanta::graph
