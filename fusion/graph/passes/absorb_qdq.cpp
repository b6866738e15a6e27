#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/quantize_linear.h"

namespace quanta::graph {
namespace {

/// Q and DQ of 8 bits and one scale become annotations: after this a value with codes stands for
/// the numbers that its codes stand for, whoever takes it, and "Quantize" is what makes one of
/// floats. Who wants the bare integers of the file gets them by "ToCodes".
class Absorber {
 public:
  explicit Absorber(Graph& graph) : graph_(graph) {}

  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) visit(node);
    for (ValueId& id : graph_.outputs) {
      if (stored_.contains(id)) id = integers_output(id);
    }
    return changed_;
  }

 private:
  void visit(Node& node) {
    const std::optional<TensorCodes> codes = tensor_codes(graph_, node);
    if (codes && node.op == "QuantizeLinear" && !graph_.is_constant(node.inputs[0])) {
      resolve(node);
      return quantize(node, *codes);
    }
    if (codes && node.op == "DequantizeLinear" && !graph_.is_constant(node.inputs[0])) {
      return dequantize(node, *codes);
    }
    if (clip_codes(node)) return;
    resolve(node);
    graph_.nodes.push_back(std::move(node));
  }

  /// Fewer codes than the type has are a function of each code.
  bool clip_codes(const Node& node) {
    if (!is_op(node, "Clip") || node.inputs.size() != 3) return false;
    const auto known = stored_.find(node.inputs[0]);
    if (known == stored_.end()) return false;
    const std::optional<std::int64_t> low = code_input(node, 1);
    const std::optional<std::int64_t> high = code_input(node, 2);
    if (!low || !high || *low > *high) return false;
    const std::int64_t grown = known->second == DType::Int8 ? 128 : 0;
    const TensorCodes codes{*graph_.values[index_of(node.inputs[0])].codes, known->second};
    auto table = std::make_shared<ByteTable>();
    for (std::size_t code = 0; code < table->size(); ++code) {
      (*table)[code] = static_cast<std::uint8_t>(
          std::clamp(static_cast<std::int64_t>(code), *low + grown, *high + grown));
    }
    changed_ = true;
    graph_.nodes.push_back(made_node(
        node.name, "Clip",
        quantized::map_codes_operation(std::move(table), codes.codes.scale, codes.codes.zero_point),
        {first(node.inputs[0])}, {node.outputs[0]}));
    annotate(node.outputs[0], codes);
    return true;
  }

  /// One constant code.
  std::optional<std::int64_t> code_input(const Node& node, std::size_t i) const {
    const Tensor value = constant_input(graph_, node, i);
    if (!value.defined() || value.numel() != 1 ||
        (value.dtype() != DType::UInt8 && value.dtype() != DType::Int8)) {
      return {};
    }
    return value.to_int64_vector()[0];
  }

  void quantize(Node& node, const TensorCodes& codes) {
    changed_ = true;
    const ValueId source = node.inputs[0];
    const ValueId result = node.outputs[0];
    annotate(result, codes);
    // One for all who want the same.
    for (const auto& [other, made] : quantized_[source]) {
      if (other == codes.codes) {
        same_[result] = made;
        graph_.values[index_of(result)].codes = codes.codes;
        return;
      }
    }
    quantized_[source].emplace_back(codes.codes, result);
    graph_.nodes.push_back(
        made_node(node.name, "Quantize", quantize_operation(codes.codes), {source}, {result}));
  }

  void dequantize(Node& node, const TensorCodes& codes) {
    changed_ = true;
    ValueId source = node.inputs[0];
    const auto known = stored_.find(source);
    if (known != stored_.end() && graph_.values[index_of(source)].codes == codes.codes &&
        known->second == codes.stored) {
      return rename(node, first(source));
    }
    if (known != stored_.end()) source = integers(source);
    const ValueId coded = graph_.add_value({.name = node.name + "_codes", .codes = codes.codes});
    graph_.nodes.push_back(made_node(
        node.name + "_from_codes", "FromCodes",
        make_operation("quantized::from_codes",
                       {{"scale", codes.codes.scale}, {"zero_point", codes.codes.zero_point}}),
        {source}, {coded}));
    rename(node, coded);
  }

  /// What the node made is `coded` from here on; a result of the graph stays what it is.
  void rename(const Node& node, ValueId coded) {
    const ValueId floats = node.outputs[0];
    renamed_[floats] = coded;
    if (graph_.is_output(floats)) {
      graph_.nodes.push_back(
          made_node(node.name, "Dequantize", make_operation("dequantize"), {coded}, {floats}));
    }
  }

  void annotate(ValueId id, const TensorCodes& codes) {
    Value& value = graph_.values[index_of(id)];
    value.codes = codes.codes;
    value.type = OnnxType::Undefined;
    stored_[id] = codes.stored;
  }

  ValueId first(ValueId id) const {
    const auto at = same_.find(id);
    return at == same_.end() ? id : at->second;
  }

  /// Inputs of a node that stays.
  void resolve(Node& node) {
    // What only moves integers moves what they stand for as well.
    const ValueId moved = node.inputs.empty() ? kNone : node.inputs[0];
    if (moved != kNone && stored_.contains(moved) && moves_codes(graph_, node) &&
        node.op != "Pad") {
      const TensorCodes codes{*graph_.values[index_of(moved)].codes, stored_[moved]};
      for (const ValueId id : node.outputs) {
        if (id != kNone) annotate(id, codes);
      }
      node.inputs[0] = first(moved);
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& id = node.inputs[i];
      if (id == kNone) continue;
      if (const auto at = renamed_.find(id); at != renamed_.end()) {
        id = at->second;
      } else if (stored_.contains(id) &&
                 !(i == 0 && !node.outputs.empty() && node.outputs[0] != kNone &&
                   stored_.contains(node.outputs[0]))) {
        id = integers(id);
      }
    }
  }

  /// The integers of the file of a coded value.
  ValueId integers(ValueId coded) {
    if (const auto at = integers_.find(coded); at != integers_.end()) return at->second;
    const std::string name = graph_.values[index_of(coded)].name;
    const DType stored = stored_[coded];
    const ValueId result =
        graph_.add_value({.name = name + "_integers", .type = onnx_type_of(stored)});
    graph_.nodes.push_back(made_node(name + "_to_codes", "ToCodes",
                                     make_operation("quantized::to_codes", {{"dtype", stored}}),
                                     {first(coded)}, {result}));
    integers_[coded] = result;
    return result;
  }

  /// The same for a result of the graph, which keeps its name.
  ValueId integers_output(ValueId coded) {
    const ValueId result = integers(coded);
    std::swap(graph_.values[index_of(coded)].name, graph_.values[index_of(result)].name);
    return result;
  }

  Graph& graph_;
  bool changed_ = false;
  std::map<ValueId, DType> stored_;     ///< values of the file that are codes, and as what
  std::map<ValueId, ValueId> renamed_;  ///< floats that are a coded value now
  std::map<ValueId, ValueId> same_;     ///< coded values that another one is the same as
  std::map<ValueId, ValueId> integers_;
  std::map<ValueId, std::vector<std::pair<Codes, ValueId>>> quantized_;
};

}  // namespace

bool absorb_qdq(Graph& graph) { return Absorber(graph).run(); }

}  // namespace quanta::graph
