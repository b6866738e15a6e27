#include <string>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/nn/fold_batch_norm.h"

namespace quanta::graph {
namespace {

Tensor float_input(const Graph& graph, const Node& node, std::size_t i) {
  const Tensor constant = constant_input(graph, node, i);
  return constant.defined() && constant.dtype() == DType::Float32 ? constant : Tensor();
}

/// In inference, with one result and constant parameters of `channels` each.
bool is_constant_norm(const Graph& graph, const Node& node, std::int64_t channels) {
  if (node.op != "BatchNormalization" || !node.domain.empty() || node.inputs.size() != 5) {
    return false;
  }
  if (integer_attribute(node, "training_mode", 0) != 0 ||
      integer_attribute(node, "spatial", 1) != 1)
    return false;
  for (std::size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNone) return false;
  }
  for (std::size_t i = 1; i < 5; ++i) {
    const Tensor parameter = float_input(graph, node, i);
    if (!parameter.defined() || parameter.dim() != 1 || parameter.size(0) != channels) return false;
  }
  return true;
}

bool fold(Graph& graph, Node& conv, Node& norm) {
  if (!conv.domain.empty() || (conv.op != "Conv" && conv.op != "ConvTranspose")) return false;
  const Tensor weight = float_input(graph, conv, 1);
  const bool has_bias = conv.inputs.size() > 2 && conv.inputs[2] != kNone;
  const Tensor bias = float_input(graph, conv, 2);
  if (!weight.defined() || weight.dim() < 3 || (has_bias && !bias.defined())) return false;
  const std::int64_t groups = conv.op == "Conv" ? 0 : integer_attribute(conv, "group", 1);
  const std::int64_t channels = groups == 0 ? weight.size(0) : weight.size(1) * groups;
  if (!is_constant_norm(graph, norm, channels)) return false;
  const FoldedWeights folded =
      quanta::fold_batch_norm(weight, bias, float_input(graph, norm, 3),
                              float_input(graph, norm, 4), number_attribute(norm, "epsilon", 1e-5),
                              float_input(graph, norm, 1), float_input(graph, norm, 2), groups);
  const std::string base = graph.values[index_of(conv.inputs[1])].name;
  const ValueId new_weight =
      graph.add_constant(graph.unique_value_name(base + "_folded"), folded.weight);
  const ValueId new_bias =
      graph.add_constant(graph.unique_value_name(base + "_folded_bias"), folded.bias);
  conv.inputs = {conv.inputs[0], new_weight, new_bias};
  conv.outputs[0] = norm.outputs[0];
  norm.outputs.clear();
  return true;
}

}  // namespace

bool fold_batch_norm(Graph& graph) {
  const Uses uses(graph);
  bool changed = false;
  for (Node& conv : graph.nodes) {
    if (conv.outputs.size() != 1 || conv.outputs[0] == kNone || !uses.used_once(conv.outputs[0])) {
      continue;
    }
    Node& norm = graph.nodes[index_of(uses.users(conv.outputs[0]).front())];
    if (norm.inputs.empty() || norm.inputs[0] != conv.outputs[0]) continue;
    changed = fold(graph, conv, norm) || changed;
  }
  if (changed) {
    std::erase_if(graph.nodes, [](const Node& node) { return node.outputs.empty(); });
    erase_dead(graph);
  }
  return changed;
}

}  // namespace quanta::graph
