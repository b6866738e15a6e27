#include <algorithm>
#include <array>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/stubs.h"

// Where eager mode has codes that reach over numbers which nobody sees: of layers before a ReLU6, and
// of means, which have those of what they are taken of.

namespace quanta::graph::detail {
namespace {

constexpr double kSix = 6.0;
constexpr double kLargestCode = 255.0;

bool takes_relu(const nn::Module& module) {
  const std::array<std::type_index, 4> layers{typeid(nn::Conv1d), typeid(nn::Conv2d),
                                              typeid(nn::Conv3d), typeid(nn::Linear)};
  return std::ranges::find(layers, std::type_index(typeid(module))) != layers.end();
}

/// The node that makes input 0 of a node that calls a module of this class, if it is the only one
/// that takes it; kNone otherwise.
template <typename Clip>
NodeId layer_before(const Parts& parts, const Uses& uses, const Node& node) {
  const nn::Module* module = parts.module_of(node);
  if (module == nullptr || typeid(*module) != typeid(Clip)) return kNone;
  const ValueId x = input_of(node, 0);
  return x != kNone && uses.used_once(x) ? uses.producer(x) : kNone;
}

/// The largest code that a layer's activations were observed for.
double largest_code(const Model& prepared, const std::string& child) {
  if (!prepared.has_child(child)) return kLargestCode;
  const QConfig* qconfig = prepared.get_submodule(child)->qconfig();
  if (qconfig == nullptr || !qconfig->activation) return kLargestCode;
  return static_cast<double>(qconfig->activation()->quant_max());
}

}  // namespace

bool split_relu6(Parts& parts) {
  Graph& graph = parts.graph;
  const Uses uses(graph);
  std::vector<NodeId> clips;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const NodeId before = layer_before<nn::ReLU6>(parts, uses, graph.nodes[n]);
    const nn::Module* layer =
        before == kNone ? nullptr : parts.module_of(graph.nodes[index_of(before)]);
    if (layer != nullptr && takes_relu(*layer)) clips.push_back(static_cast<NodeId>(n));
  }
  // From the end, so that positions before stay what they are.
  std::ranges::reverse(clips);
  for (const NodeId n : clips) {
    const std::string name = graph.nodes[index_of(n)].name + "_relu";
    auto relu = nn::make_module<nn::ReLU>();
    relu->eval();
    Node node{.name = name, .op = "Relu", .opset = graph.nodes[index_of(n)].opset};
    node.row = op_table().find("", "Relu", node.opset);
    node.module = parts.unique_child_name(name);
    parts.children.push_back({node.module, std::move(relu)});
    const ValueId made =
        graph.add_value({.name = graph.unique_value_name(name), .type = OnnxType::Float});
    node.inputs = {std::exchange(graph.nodes[index_of(n)].inputs[0], made)};
    node.outputs = {made};
    graph.nodes.insert(graph.nodes.begin() + n, std::move(node));
  }
  return !clips.empty();
}

bool absorb_relu6(Parts& converted, const Model& prepared) {
  Graph& graph = converted.graph;
  const Uses uses(graph);
  bool changed = false;
  for (Node& node : graph.nodes) {
    const NodeId before = layer_before<nn::quantized::ReLU6>(converted, uses, node);
    if (before == kNone) continue;
    Node& layer = graph.nodes[index_of(before)];
    auto* codes = dynamic_cast<nn::quantized::OutputQuantized*>(converted.module_of(layer));
    // Behind a ReLU nothing is below 0.
    if (codes == nullptr || codes->zero_point != 0) continue;
    const double six = static_cast<float>(kSix / largest_code(prepared, layer.module));
    codes->scale = std::min(codes->scale, six);
    if (codes->scale * kLargestCode > kSix * (1.0 + 1e-6)) continue;
    layer.outputs[0] = node.outputs[0];
    node.outputs.clear();
    changed = true;
  }
  std::erase_if(graph.nodes, [](const Node& node) { return node.outputs.empty(); });
  return erase_dead(graph) || changed;
}

bool absorb_means(Parts& converted) {
  Graph& graph = converted.graph;
  const Uses uses(graph);
  bool changed = false;
  for (Node& node : graph.nodes) {
    const ValueId x = is_op(node, "GlobalAveragePool") ? input_of(node, 0) : kNone;
    if (x == kNone) continue;
    const Node* dequantize = producer_of(graph, uses, x);
    if (dequantize == nullptr) continue;
    const nn::Module* module = converted.module_of(*dequantize);
    if (module == nullptr || typeid(*module) != typeid(nn::quantized::DeQuantize)) continue;
    node = made_node(node.name, node.op, make_operation("quantized::global_mean_to_float"),
                     {dequantize->inputs[0]}, node.outputs);
    changed = true;
  }
  return erase_dead(graph) || changed;
}

}  // namespace quanta::graph::detail
