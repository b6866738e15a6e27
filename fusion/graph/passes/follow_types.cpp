#include <algorithm>
#include <array>
#include <string_view>

#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

bool is_one_of(std::string_view op, std::span<const std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

constexpr std::array<std::string_view, 5> kGiveInt64{"Shape", "Size", "NonZero", "ArgMax",
                                                     "ArgMin"};
constexpr std::array<std::string_view, 11> kGiveBool{
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or",
    "Xor",   "Not",     "IsNaN",          "IsInf"};

/// All inputs are of one type, which one of them may tell.
constexpr std::array<std::string_view, 10> kAlike{"Add", "Concat", "Div", "Max", "Mean",
                                                  "Min", "Mod",    "Mul", "Sub", "Sum"};

OnnxType followed(const Graph& graph, const Node& node) {
  const auto type_of = [&](std::size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNone
               ? graph.values[static_cast<std::size_t>(node.inputs[i])].type
               : OnnxType::Undefined;
  };
  if (is_one_of(node.op, kGiveInt64)) return OnnxType::Int64;
  if (is_one_of(node.op, kGiveBool)) return OnnxType::Bool;
  if (node.op == "Cast") {
    return static_cast<OnnxType>(integer_attribute(node, "to", 0));
  }
  if (node.op == "CastLike") return type_of(1);
  if (node.op == "Where") return type_of(1);
  if (node.op == "DequantizeLinear") return type_of(1);
  if (node.op == "OneHot") return type_of(2);
  if (node.op == "ConstantOfShape") {
    const auto value = node.attributes.find("value");
    const auto* tensor =
        value == node.attributes.end() ? nullptr : std::get_if<OnnxTensor>(&value->second);
    return tensor == nullptr ? OnnxType::Float : tensor->type;
  }
  if (node.op == "If" || node.op == "Loop" || node.op == "Scan" || node.op == "QuantizeLinear") {
    return OnnxType::Undefined;
  }
  if (is_one_of(node.op, kAlike)) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (type_of(i) != OnnxType::Undefined) return type_of(i);
    }
  }
  return type_of(0);
}

}  // namespace

bool follow_types(Graph& graph) {
  bool changed = false;
  for (const Node& node : graph.nodes) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      Value& value = graph.values[static_cast<std::size_t>(node.outputs[i])];
      if (value.type != OnnxType::Undefined) continue;
      // Indices are the second result of MaxPool and TopK.
      const bool is_index = i == 1 && (node.op == "TopK" || node.op == "MaxPool");
      value.type = is_index ? OnnxType::Int64 : followed(graph, node);
      changed = changed || value.type != OnnxType::Undefined;
    }
  }
  return changed;
}

}  // namespace quanta::graph
