#include <map>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/stubs.h"

namespace quanta::graph::detail {
namespace {

/// The codes that an observer chose, per tensor.
Codes codes_of(const Observer& observer) {
  const ObservedQParams qparams = observer.calculate_qparams();
  return {.dtype = observer.dtype(),
          .scale = qparams.scale.to_float_vector().at(0),
          .zero_point = qparams.zero_point.to_int64_vector().at(0)};
}

}  // namespace

Model convert_literally(const Model& prepared) {
  std::map<std::string, Codes> codes;
  for (const auto& child : prepared.named_children()) {
    const auto& observer = child.module->activation_post_process();
    if (observer != nullptr) codes[child.name] = codes_of(*observer);
  }
  // Weights as quantizing leaves them; what only marks or joins activations stays as it is.
  ModuleMapping mapping = default_static_quant_reference_module_mappings();
  mapping.remove<nn::QuantStub>().remove<nn::DeQuantStub>().remove<nn::FloatFunctional>();
  Parts parts = take_apart(convert(prepared, {.mapping = std::move(mapping)}));
  Graph& graph = parts.graph;
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    const auto found = codes.find(node.module);
    if (found == codes.end() || node.outputs.empty() || node.outputs[0] == kNone) {
      nodes.push_back(std::move(node));
      continue;
    }
    const ValueId result = node.outputs[0];
    const std::string& base = graph.values[index_of(result)].name;
    const ValueId raw =
        graph.add_value({.name = graph.unique_value_name(base + "_raw"), .type = OnnxType::Float});
    const ValueId quantized = graph.add_value(
        {.name = graph.unique_value_name(graph.values[index_of(result)].name + "_codes")});
    node.outputs[0] = raw;
    const std::string name = node.name;
    nodes.push_back(std::move(node));
    auto quantize = make_operation("quantize_per_tensor", {{"scale", found->second.scale},
                                                           {"zero_point", found->second.zero_point},
                                                           {"dtype", found->second.dtype}});
    nodes.push_back(made_node(name + "_quantize", "quantize_per_tensor", std::move(quantize), {raw},
                              {quantized}));
    nodes.push_back(made_node(name + "_dequantize", "dequantize", make_operation("dequantize"),
                              {quantized}, {result}));
  }
  graph.nodes = std::move(nodes);
  return put_together(std::move(parts));
}

}  // namespace quanta::graph::detail
