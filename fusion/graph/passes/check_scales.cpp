#include <cmath>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

// Which inputs of the operator are scales of codes.
std::vector<std::size_t> scale_inputs(const Node& node) {
  if (node.op == "QuantizeLinear" || node.op == "DequantizeLinear") return {1};
  if (node.op == "QLinearConv" || node.op == "QLinearMatMul") return {1, 4, 6};
  return {};
}

}  // namespace

void check_scales(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (const auto& [name, within] : node.graphs) check_scales(*within);
    for (const std::size_t input : scale_inputs(node)) {
      if (input >= node.inputs.size() || node.inputs[input] == kNone) continue;
      const Value& value = graph.values[index_of(node.inputs[input])];
      if (!value.constant.defined() || !value.constant.is_floating_point()) continue;
      for (const float scale : value.constant.to_float_vector()) {
        if (std::isfinite(scale)) continue;
        throw FileError(fmt::format("node '{}' ({}): '{}': expected finite scales, got {}",
                                    node.name, node.op, value.name, scale));
      }
    }
  }
}

}  // namespace quanta::graph
