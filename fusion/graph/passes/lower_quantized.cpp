#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/fusion/graph/run.h"

namespace quanta::graph {
namespace {

/// The axis of scales after a node that moves what they belong to, or -1 where it is torn.
std::int64_t moved_axis(const Node& node, std::int64_t axis, std::int64_t rank) {
  if (node.op == "Identity") return axis;
  if (node.op != "Transpose") return -1;
  const std::vector<std::int64_t> order = list_attribute(node, "perm");
  if (order.empty()) return rank - 1 - axis;
  const auto at = std::ranges::find(order, axis);
  return at == order.end() ? -1 : at - order.begin();
}

}  // namespace

bool move_constant_codes(Graph& graph) {
  constexpr std::array kMoving{"Flatten", "Identity",  "Reshape",
                               "Squeeze", "Transpose", "Unsqueeze"};
  const auto constant = [&](ValueId id) { return id == kNone || graph.is_constant(id); };
  bool changed = false;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node node = graph.nodes[n];
    if (!is_plain(node) || !node.domain.empty() || node.outputs.size() != 1 ||
        std::ranges::find(kMoving, std::string_view(node.op)) == kMoving.end()) {
      continue;
    }
    const NodeId made = graph.producer(node.inputs[0]);
    if (made == kNone) continue;
    Node dequantize = graph.nodes[index_of(made)];
    if (!is_op(dequantize, "DequantizeLinear") ||
        !std::ranges::all_of(dequantize.inputs, constant) ||
        !std::all_of(node.inputs.begin() + 1, node.inputs.end(), constant) ||
        integer_attribute(dequantize, "block_size", 0) != 0) {
      continue;
    }
    const Value& codes = graph.values[index_of(dequantize.inputs[0])];
    const std::int64_t rank = codes.constant.dim();
    if (graph.values[index_of(dequantize.inputs[1])].constant.numel() != 1) {
      std::int64_t axis = integer_attribute(dequantize, "axis", 1);
      axis = moved_axis(node, axis < 0 ? axis + rank : axis, rank);
      if (axis < 0) continue;
      dequantize.attributes["axis"] = axis;
    }
    std::vector<Tensor> inputs{codes.constant};
    std::vector<OnnxType> types{codes.type};
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      inputs.push_back(id == kNone ? Tensor() : graph.values[index_of(id)].constant);
      types.push_back(id == kNone ? OnnxType::Undefined : graph.values[index_of(id)].type);
    }
    Value moved{.name = codes.name + "_for_" + node.name,
                .constant = run_node(node, nullptr, inputs, types)[0],
                .type = codes.type};
    dequantize.inputs[0] = graph.add_value(std::move(moved));
    dequantize.outputs = node.outputs;
    dequantize.name = node.name;
    graph.nodes[n] = std::move(dequantize);
    changed = true;
  }
  return changed;
}

bool use_torch_arithmetic(Graph& graph) {
  bool changed = false;
  for (Node& node : graph.nodes) {
    if (!is_made(node, "Quantize")) continue;
    std::vector<std::pair<std::string_view, Attribute>> settings;
    for (const char* name : {"scale", "zero_point", "dtype"}) {
      settings.emplace_back(name, attribute_of(*node.operation, name));
    }
    node.operation = make_operation("quantize_per_tensor", settings);
    changed = true;
  }
  return changed;
}

bool lower_quantized(Graph& graph, std::vector<nn::Module::NamedChild>& children,
                     bool torch_arithmetic) {
  bool changed = drop_identity(graph);
  if (expand_qoperators(graph)) changed = true;
  if (move_constant_codes(graph)) changed = true;
  if (fold_channel_scales(graph)) changed = true;
  if (lower_dynamic(graph)) changed = true;
  if (split_wide_codes(graph)) changed = true;
  if (absorb_qdq(graph)) changed = true;
  if (absorb_tables(graph)) changed = true;
  if (spread_codes(graph)) changed = true;
  if (torch_arithmetic) use_torch_arithmetic(graph);
  if (lower_codes(graph, children)) changed = true;
  if (merge_tables(graph)) changed = true;
  if (lower_weight_only(graph, children)) changed = true;
  if (fold_constants(graph)) changed = true;
  return changed;
}

}  // namespace quanta::graph
