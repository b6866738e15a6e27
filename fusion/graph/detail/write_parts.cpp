// Activations that are newer than the opset of the file, as older operators: what fuse_activations
// reads as one operator again.

#include <numbers>

#include "quanta/fusion/graph/detail/onnx_versions.h"
#include "quanta/fusion/graph/detail/onnx_writer.h"

namespace quanta::graph::detail {

bool GraphWriter::has_parts(const Node& node) const {
  if (!node.domain.empty() || !node.attributes.empty()) return false;
  const bool is_known = node.op == "HardSwish" || node.op == "Swish" || node.op == "Gelu";
  return is_known && !keeps_meaning(node.op, node.opset, state.opset);
}

void GraphWriter::write_parts(const Node& node, const std::string& x, const std::string& y) {
  const auto part = [&](const std::string& op, std::vector<std::string> inputs,
                        OnnxAttributes attributes = {}) {
    std::string result = state.unique_value(node.name + "_" + op);
    emit(node.name + "_" + op, op, std::move(inputs), {result}, std::move(attributes));
    return result;
  };
  const auto number = [&](const char* name, double value) {
    return weight(node.name + "_" + name, Tensor::scalar(value));
  };
  if (node.op == "HardSwish") {
    const OnnxAttributes settings{{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}};
    return emit(node.name, "Mul", {x, part("HardSigmoid", {x}, settings)}, {y});
  }
  if (node.op == "Swish") return emit(node.name, "Mul", {x, part("Sigmoid", {x})}, {y});
  state.need(9, "Erf");
  const std::string scaled = part("Div", {x, number("sqrt2", std::numbers::sqrt2)});
  const std::string gate = part("Add", {part("Erf", {scaled}), number("one", 1.0)});
  emit(node.name, "Mul", {part("Mul", {x, gate}), number("half", 0.5)}, {y});
}

}  // namespace quanta::graph::detail
