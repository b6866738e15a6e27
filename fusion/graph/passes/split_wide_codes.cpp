#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/operation.h"

namespace quanta::graph {
namespace {

constexpr std::int64_t kByte = 256;
/// What makes signed codes of 16 bits unsigned.
constexpr std::int64_t kHalfRange = 32768;

/// A byte of each code of 16 bits, as UInt8.
struct ByteOfCodes final : ComposedOp<ByteOfCodes> {
  static constexpr std::string_view kName = "byte_of_codes";
  static constexpr ArgumentCount kArguments{1};
  bool high = false;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const auto number = [](std::int64_t value) {
      return Tensor::full({}, static_cast<double>(value), DType::Int32);
    };
    Tensor codes = in[0].to(DType::Int32);
    if (in[0].dtype() == DType::Int16) codes = add(codes, number(kHalfRange));
    const Tensor byte =
        high ? bitwise_right_shift(codes, number(8)) : bitwise_and(codes, number(kByte - 1));
    return {byte.to(DType::UInt8)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<ByteOfCodes, &ByteOfCodes::high>("high")};
    return kTable;
  }
};

/// Codes of 16 bits with one scale.
struct WideCodes {
  ValueId codes = kNone;
  Tensor scale;
  std::int64_t zero_point = 0;  ///< of unsigned codes
};

/// What a DequantizeLinear of codes of 16 bits with one scale reads.
std::optional<WideCodes> wide_codes(const Graph& graph, const Node& node) {
  if (!is_op(node, "DequantizeLinear") || input_of(node, 0) == kNone ||
      graph.is_constant(node.inputs[0])) {
    return {};
  }
  const Tensor scale = constant_input(graph, node, 1);
  const Tensor zero = constant_input(graph, node, 2);
  if (!scale.defined() || scale.numel() != 1 || scale.dtype() != DType::Float32 ||
      !zero.defined() || zero.numel() != 1) {
    return {};
  }
  const bool is_signed = zero.dtype() == DType::Int16;
  if (!is_signed && zero.dtype() != DType::UInt16) return {};
  if (!(scale.item() > 0.0) || !std::isfinite(scale.item() * kByte)) return {};
  return WideCodes{node.inputs[0], scale.reshape({}),
                   zero.to_int64_vector()[0] + (is_signed ? kHalfRange : 0)};
}

/// Whether a node is a layer with a constant weight of 8-bit codes that has a scale for each of its
/// results at most.
bool is_coded_layer(const Graph& graph, const Node& node) {
  constexpr std::int64_t kGemmWithoutBias = 11;
  if (!is_plain(node) || !node.domain.empty() || node.inputs.size() < 2 ||
      node.outputs.size() != 1 || node.inputs[1] == kNone) {
    return false;
  }
  std::int64_t axis = 0;
  if (node.op == "ConvTranspose" || node.op == "MatMul") {
    axis = 1;
  } else if (node.op == "Gemm" && node.opset >= kGemmWithoutBias) {
    axis = integer_attribute(node, "transB", 0) != 0 ? 0 : 1;
  } else if (node.op != "Conv") {
    return false;
  }
  const std::optional<WeightCodes> weight = weight_codes(graph, node.inputs[1]);
  return weight && weight->codes.dim() >= 2 && signed_weight(*weight, axis).has_value();
}

class WideLayers {
 public:
  explicit WideLayers(Graph& graph) : graph_(graph), uses_(graph) {}

  bool run() {
    bool changed = false;
    for (const Node& node : graph_.nodes) {
      std::optional<WideCodes> wide;
      if (is_coded_layer(graph_, node)) {
        const Node* made = producer_of(graph_, uses_, node.inputs[0]);
        if (made != nullptr) wide = wide_codes(graph_, *made);
      }
      if (!wide) {
        nodes_.push_back(node);
        continue;
      }
      split(node, *wide);
      changed = true;
    }
    if (!changed) return false;
    graph_.nodes = std::move(nodes_);
    erase_dead(graph_);
    return true;
  }

 private:
  ValueId value(const std::string& name, OnnxType type) {
    return graph_.add_value({.name = graph_.unique_value_name(name), .type = type});
  }

  /// The layer's result for one byte of the codes. The bias goes with the high one.
  ValueId part(const Node& layer, const WideCodes& wide, bool high) {
    const std::string name = layer.name + (high ? "_high" : "_low");
    auto byte = std::make_shared<ByteOfCodes>();
    byte->high = high;
    const ValueId codes = value(name + "_codes", OnnxType::UInt8);
    nodes_.push_back(
        made_node(name + "_codes", "ByteOfCodes", std::move(byte), {wide.codes}, {codes}));
    const std::int64_t zero = high ? wide.zero_point / kByte : wide.zero_point % kByte;
    const double scale = wide.scale.item() * static_cast<double>(high ? kByte : 1);
    Node dequantize{.name = name + "_dequantize", .op = "DequantizeLinear", .opset = layer.opset};
    dequantize.row = op_table().find("", dequantize.op, layer.opset);
    dequantize.inputs = {
        codes,
        graph_.add_constant(graph_.unique_value_name(name + "_scale"), Tensor::scalar(scale)),
        graph_.add_constant(graph_.unique_value_name(name + "_zero_point"),
                            Tensor::full({}, static_cast<double>(zero), DType::UInt8))};
    dequantize.outputs = {value(name + "_x", OnnxType::Float)};
    Node product = layer;
    product.name = name;
    product.inputs[0] = dequantize.outputs[0];
    if (!high) product.inputs.resize(2);
    product.outputs = {value(name + "_y", OnnxType::Float)};
    nodes_.push_back(std::move(dequantize));
    const ValueId result = product.outputs[0];
    nodes_.push_back(std::move(product));
    return result;
  }

  void split(const Node& layer, const WideCodes& wide) {
    Node sum{.name = layer.name, .op = "Add", .opset = layer.opset};
    sum.row = op_table().find("", sum.op, layer.opset);
    const ValueId high = part(layer, wide, true);
    sum.inputs = {high, part(layer, wide, false)};
    sum.outputs = layer.outputs;
    nodes_.push_back(std::move(sum));
  }

  Graph& graph_;
  Uses uses_;
  std::vector<Node> nodes_;
};

}  // namespace

bool split_wide_codes(Graph& graph) { return WideLayers(graph).run(); }

}  // namespace quanta::graph
