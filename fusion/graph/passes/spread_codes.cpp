#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

/// The codes that all users of a value want of it, and who makes them: one Quantize, as equal ones
/// are one already.
const Node* only_quantize(const Graph& graph, const Uses& uses, ValueId id) {
  if (id == kNone || !uses.used_once(id)) return nullptr;
  const Node& user = graph.nodes[index_of(uses.users(id)[0])];
  return is_made(user, "Quantize") ? &user : nullptr;
}

/// A constant, or the floats of constant codes.
bool is_fixed(const Graph& graph, const Uses& uses, ValueId id) {
  const NodeId made = uses.producer(id);
  return graph.is_constant(id) ||
         (made != kNone && is_op(graph.nodes[index_of(made)], "DequantizeLinear") &&
          graph.is_constant(graph.nodes[index_of(made)].inputs[0]));
}

/// Quantize moves to before a node that only moves numbers. One step; gives whether there was one.
bool move_back(Graph& graph) {
  const Uses uses(graph);
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    if (!moves_codes(graph, graph.nodes[n]) || graph.nodes[n].outputs.size() != 1) continue;
    const ValueId source = graph.nodes[n].inputs[0];
    if (is_fixed(graph, uses, source) || graph.values[index_of(source)].codes) continue;
    const Node* quantize = only_quantize(graph, uses, graph.nodes[n].outputs[0]);
    if (quantize == nullptr) continue;
    const ValueId result = quantize->outputs[0];
    const Codes codes = *graph.values[index_of(result)].codes;
    const std::string name = quantize->name;
    const ValueId coded =
        graph.add_value({.name = graph.values[index_of(source)].name + "_codes", .codes = codes});
    graph.nodes.erase(graph.nodes.begin() + (quantize - graph.nodes.data()));
    graph.nodes[n].inputs[0] = coded;
    graph.nodes[n].outputs[0] = result;
    graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(n),
                       made_node(name, "Quantize", quantize_operation(codes), {source}, {coded}));
    return true;
  }
  return false;
}

/// Equal Quantize nodes of one value become one.
bool merge_equal(Graph& graph) {
  std::map<ValueId, std::vector<ValueId>> made;
  std::vector<std::pair<ValueId, ValueId>> same;
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    if (is_made(node, "Quantize")) {
      const auto& codes = graph.values[index_of(node.outputs[0])].codes;
      const auto& others = made[node.inputs[0]];
      const auto equal = std::ranges::find_if(
          others, [&](ValueId other) { return graph.values[index_of(other)].codes == codes; });
      if (equal != others.end()) {
        same.emplace_back(node.outputs[0], *equal);
        continue;
      }
      made[node.inputs[0]].push_back(node.outputs[0]);
    }
    kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  for (const auto& [from, to] : same) graph.replace_all_uses(from, to);
  return !same.empty();
}

/// Whether a Concat joins values that have the same codes.
bool joins_equal_codes(const Graph& graph, const Node& node) {
  if (!is_op(node, "Concat") || node.inputs.empty()) return false;
  return std::ranges::all_of(node.inputs, [&](ValueId id) {
    return id != kNone && graph.values[index_of(id)].codes &&
           graph.values[index_of(id)].codes == graph.values[index_of(node.inputs[0])].codes;
  });
}

/// Results of nodes that only move what has codes get them; Quantize of what has these codes
/// already goes.
bool move_forward(Graph& graph) {
  bool changed = false;
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  std::map<ValueId, ValueId> same;
  for (Node& node : nodes) {
    for (ValueId& id : node.inputs) {
      if (const auto at = same.find(id); at != same.end()) id = at->second;
    }
    const ValueId source = node.inputs.empty() ? kNone : node.inputs[0];
    const std::optional<Codes> codes =
        source == kNone ? std::nullopt : graph.values[index_of(source)].codes;
    if (codes && is_made(node, "Quantize") &&
        graph.values[index_of(node.outputs[0])].codes == codes) {
      same[node.outputs[0]] = source;
      changed = true;
      continue;
    }
    std::vector<Node> behind;
    if (codes && (moves_codes(graph, node) || joins_equal_codes(graph, node))) {
      for (ValueId& id : node.outputs) {
        if (id == kNone || graph.values[index_of(id)].codes) continue;
        changed = true;
        if (graph.is_output(id)) {  // of floats: these stay
          const ValueId floats = id;
          id = graph.add_value({.name = graph.values[index_of(floats)].name + "_codes"});
          behind.push_back(made_node(node.name + "_dequantize", "Dequantize",
                                     make_operation("dequantize"), {id}, {floats}));
          same[floats] = id;
        }
        graph.values[index_of(id)].codes = codes;
        graph.values[index_of(id)].type = OnnxType::Undefined;
      }
    }
    graph.nodes.push_back(std::move(node));
    for (Node& each : behind) graph.nodes.push_back(std::move(each));
  }
  return changed;
}

}  // namespace

bool spread_codes(Graph& graph) {
  bool changed = move_forward(graph);
  while (move_back(graph)) changed = true;
  if (merge_equal(graph)) changed = true;
  if (move_forward(graph)) changed = true;
  return changed;
}

}  // namespace quanta::graph
