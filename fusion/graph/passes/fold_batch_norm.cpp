#include <string>
#include <vector>

#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/nn/fold_batch_norm.h"

namespace quanta::graph {
namespace {

std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

Tensor constant_input(const Graph& graph, const Node& node, std::size_t i) {
  if (i >= node.inputs.size() || node.inputs[i] == kNone) return {};
  const Tensor& constant = graph.values[index(node.inputs[i])].constant;
  return constant.defined() && constant.dtype() == DType::Float32 ? constant : Tensor();
}

std::int64_t integer(const Node& node, std::string_view name, std::int64_t otherwise) {
  const auto found = node.attributes.find(name);
  const auto* value =
      found == node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value == nullptr ? otherwise : *value;
}

double epsilon_of(const Node& node) {
  const auto found = node.attributes.find("epsilon");
  const auto* value = found == node.attributes.end() ? nullptr : std::get_if<float>(&found->second);
  return value == nullptr ? 1e-5 : static_cast<double>(*value);
}

/// In inference, with one result and constant parameters of `channels` each.
bool is_constant_norm(const Graph& graph, const Node& node, std::int64_t channels) {
  if (node.op != "BatchNormalization" || !node.domain.empty() || node.inputs.size() != 5) {
    return false;
  }
  if (integer(node, "training_mode", 0) != 0 || integer(node, "spatial", 1) != 1) return false;
  for (std::size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNone) return false;
  }
  for (std::size_t i = 1; i < 5; ++i) {
    const Tensor parameter = constant_input(graph, node, i);
    if (!parameter.defined() || parameter.dim() != 1 || parameter.size(0) != channels) return false;
  }
  return true;
}

bool fold(Graph& graph, Node& conv, Node& norm) {
  if (!conv.domain.empty() || (conv.op != "Conv" && conv.op != "ConvTranspose")) return false;
  const Tensor weight = constant_input(graph, conv, 1);
  const bool has_bias = conv.inputs.size() > 2 && conv.inputs[2] != kNone;
  const Tensor bias = constant_input(graph, conv, 2);
  if (!weight.defined() || weight.dim() < 3 || (has_bias && !bias.defined())) return false;
  const std::int64_t groups = conv.op == "Conv" ? 0 : integer(conv, "group", 1);
  const std::int64_t channels = groups == 0 ? weight.size(0) : weight.size(1) * groups;
  if (!is_constant_norm(graph, norm, channels)) return false;
  const FoldedWeights folded = quanta::fold_batch_norm(
      weight, bias, constant_input(graph, norm, 3), constant_input(graph, norm, 4),
      epsilon_of(norm), constant_input(graph, norm, 1), constant_input(graph, norm, 2), groups);
  const std::string base = graph.values[index(conv.inputs[1])].name;
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
    Node& norm = graph.nodes[index(uses.users(conv.outputs[0]).front())];
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
