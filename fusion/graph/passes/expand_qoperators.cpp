#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/arithmetic.h"

namespace quanta::graph {
namespace {

constexpr std::int64_t kOpset = 13;

/// An operator of ONNX between codes: where its coded inputs stand, and scale and zero point of the
/// result. The first input of each is followed by its own two.
struct CodedOperator {
  std::string_view name, domain, op;
  std::vector<std::size_t> coded;
  std::size_t result;
};

const std::vector<CodedOperator>& coded_operators() {
  static const std::vector<CodedOperator> all{
      {"QGemm", "com.microsoft", "Gemm", {0, 3}, 7},
      {"QLinearAdd", "com.microsoft", "Add", {0, 3}, 6},
      {"QLinearAveragePool", "com.microsoft", "AveragePool", {0}, 3},
      {"QLinearConcat", "com.microsoft", "Concat", {}, 0},
      {"QLinearConv", "", "Conv", {0, 3}, 6},
      {"QLinearGlobalAveragePool", "com.microsoft", "GlobalAveragePool", {0}, 3},
      {"QLinearLeakyRelu", "com.microsoft", "LeakyRelu", {0}, 3},
      {"QLinearMatMul", "", "MatMul", {0, 3}, 6},
      {"QLinearMul", "com.microsoft", "Mul", {0, 3}, 6},
      {"QLinearReduceMean", "com.microsoft", "ReduceMean", {0}, 3},
      {"QLinearSigmoid", "com.microsoft", "Sigmoid", {0}, 3},
      {"QLinearSoftmax", "com.microsoft", "Softmax", {0}, 3},
      {"QLinearWhere", "com.microsoft", "Where", {1, 4}, 7},
  };
  return all;
}

class Expander {
 public:
  explicit Expander(Graph& graph) : graph_(graph) {}

  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    bool changed = false;
    for (Node& node : nodes) {
      if (expand(node)) {
        changed = true;
      } else {
        graph_.nodes.push_back(std::move(node));
      }
    }
    return changed;
  }

 private:
  bool expand(const Node& node) {
    const auto& all = coded_operators();
    const auto found = std::ranges::find_if(all, [&](const CodedOperator& each) {
      return is_plain(node) && node.op == each.name && node.domain == each.domain;
    });
    if (found == all.end() || integer_attribute(node, "channels_last", 0) != 0) return false;
    std::vector<std::size_t> coded = found->coded;
    if (node.op == "QLinearConcat") {
      for (std::size_t i = 2; i + 2 < node.inputs.size(); i += 3) coded.push_back(i);
    }
    if (!has_constants(node, *found, coded)) return false;

    std::vector<ValueId> inputs;
    if (node.op == "QLinearWhere") inputs.push_back(node.inputs[0]);
    for (const std::size_t i : coded) inputs.push_back(dequantized(node, i));
    if (node.op == "QLinearConv") add_bias(node, 8, node.inputs[1], node.inputs[4], 1.0, inputs);
    if (node.op == "QGemm") {
      add_bias(node, 6, node.inputs[1], node.inputs[4], number_attribute(node, "alpha", 1.0),
               inputs);
    }
    Node plain{.name = node.name, .op = std::string(found->op), .opset = kOpset};
    plain.attributes = node.attributes;
    plain.attributes.erase("channels_last");
    if (node.op == "QLinearSoftmax") {
      if (integer_attribute(node, "opset", 13) < 13) plain.opset = 12;
      plain.attributes.erase("opset");
    }
    if (node.op == "QLinearConv") plain.opset = 11;
    plain.row = op_table().find("", plain.op, plain.opset);
    if (plain.row == nullptr) return false;
    plain.inputs = std::move(inputs);
    const bool floats = found->result >= node.inputs.size() || node.inputs[found->result] == kNone;
    plain.outputs = {floats ? node.outputs[0] : add_value(node.name + "_floats")};
    const ValueId result = plain.outputs[0];
    graph_.nodes.push_back(std::move(plain));
    if (!floats) {
      const auto at = [&](std::size_t i) {
        return i < node.inputs.size() ? node.inputs[i] : kNone;
      };
      add_linear("QuantizeLinear", node.name + "_codes",
                 {result, node.inputs[found->result], at(found->result + 1)}, node.outputs[0], 1);
    }
    return true;
  }

  bool has_constants(const Node& node, const CodedOperator& op,
                     const std::vector<std::size_t>& coded) const {
    const auto is_fixed = [&](std::size_t i) {
      return i >= node.inputs.size() || node.inputs[i] == kNone ||
             graph_.is_constant(node.inputs[i]);
    };
    bool fixed = is_fixed(op.result) && is_fixed(op.result + 1);
    for (const std::size_t i : coded) {
      fixed = fixed && i + 2 < node.inputs.size() && node.inputs[i + 1] != kNone &&
              is_fixed(i + 1) && is_fixed(i + 2);
    }
    return fixed && node.outputs.size() == 1;
  }

  ValueId add_value(std::string name) {
    return graph_.add_value({.name = std::move(name), .type = OnnxType::Float});
  }

  void add_linear(std::string_view op, std::string name, std::vector<ValueId> inputs,
                  ValueId output, std::int64_t axis) {
    Node node{.name = std::move(name), .op = std::string(op), .opset = kOpset};
    node.inputs = std::move(inputs);
    node.outputs = {output};
    node.attributes["axis"] = axis;
    node.row = op_table().find("", op, kOpset);
    graph_.nodes.push_back(std::move(node));
  }

  /// Floats of input `i`. Scales of a weight lie along its output channels.
  ValueId dequantized(const Node& node, std::size_t i) {
    const ValueId result = add_value(node.name + "_input_" + std::to_string(i));
    std::int64_t axis = 0;
    if (node.op == "QLinearMatMul" || node.op == "QGemm") {
      axis = i == 0 || integer_attribute(node, "transB", 0) != 0 ? 0 : -1;
    }
    add_linear("DequantizeLinear", node.name + "_dequantized_" + std::to_string(i),
               {node.inputs[i], node.inputs[i + 1], node.inputs[i + 2]}, result, axis);
    return result;
  }

  /// A bias in units of the product of both scales.
  void add_bias(const Node& node, std::size_t i, ValueId scale, ValueId weight_scale, double factor,
                std::vector<ValueId>& inputs) {
    if (i >= node.inputs.size() || node.inputs[i] == kNone) return;
    const Tensor& bias = graph_.values[index_of(node.inputs[i])].constant;
    if (bias.defined() && bias.dtype() == DType::Float32) {  // of restore_biases
      inputs.push_back(node.inputs[i]);
      return;
    }
    const Tensor unit =
        mul_scalar(mul(graph_.values[index_of(scale)].constant.to(DType::Float32).reshape({}),
                       graph_.values[index_of(weight_scale)].constant.to(DType::Float32)),
                   factor);
    const ValueId units =
        graph_.add_constant(node.name + "_bias_scale", unit.numel() == 1 ? unit.reshape({}) : unit);
    const ValueId result = add_value(node.name + "_bias");
    add_linear("DequantizeLinear", node.name + "_dequantized_bias", {node.inputs[i], units}, result,
               0);
    inputs.push_back(result);
  }

  Graph& graph_;
};

}  // namespace

bool expand_qoperators(Graph& graph) { return Expander(graph).run(); }

}  // namespace quanta::graph
