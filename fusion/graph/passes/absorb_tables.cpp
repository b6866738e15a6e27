#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/quantize_linear.h"

namespace quanta::graph {
namespace {

/// What makes coded values of integers moves to before a node that only moves numbers, so that it
/// meets what made the integers. One step; gives whether there was one.
bool move_back(Graph& graph) {
  const Uses uses(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& from_codes = graph.nodes[n];
    if (!is_made(from_codes, "FromCodes") || !uses.used_once(from_codes.inputs[0])) continue;
    const NodeId made = uses.producer(from_codes.inputs[0]);
    if (made == kNone) continue;
    Node& moving = graph.nodes[index_of(made)];
    if (!moves_codes(graph, moving) || moving.op == "Pad" || moving.outputs.size() != 1 ||
        graph.is_constant(moving.inputs[0])) {
      continue;
    }
    const Value& result = graph.values[index_of(from_codes.outputs[0])];
    const ValueId coded = graph.add_value(
        {.name = graph.unique_value_name(moving.name + "_codes"), .codes = result.codes});
    moving.outputs[0] = std::exchange(from_codes.outputs[0], coded);
    from_codes.inputs[0] = std::exchange(moving.inputs[0], coded);
    std::rotate(graph.nodes.begin() + made, graph.nodes.begin() + static_cast<std::ptrdiff_t>(n),
                graph.nodes.begin() + static_cast<std::ptrdiff_t>(n) + 1);
    return true;
  }
  return false;
}

/// Gather from 256 numbers at the place of a code: how save_onnx writes functions of codes.
class TableAbsorber {
 public:
  explicit TableAbsorber(Graph& graph) : graph_(graph), uses_(graph) {}

  bool run() {
    bool changed = false;
    for (Node& node : graph_.nodes) {
      if (is_made(node, "FromCodes") ? make_codes(node) : make_floats(node)) changed = true;
    }
    return changed && (erase_dead(graph_) || changed);
  }

 private:
  /// Integers of the file that are a function of the codes of a value.
  struct Answers {
    ValueId source = kNone;
    ByteTable table{};
    bool looked_up = false;
  };

  const Node* producer(ValueId id) const { return producer_of(graph_, uses_, id); }

  /// The 256 numbers from which a node gathers, and by what; undefined for another one.
  Tensor looked_up(const Node& node, DType dtype, std::optional<Answers>& by) const {
    if (!is_op(node, "Gather") || node.inputs.size() != 2 || !graph_.is_constant(node.inputs[0])) {
      return {};
    }
    const Tensor table = graph_.values[index_of(node.inputs[0])].constant;
    if (table.dtype() != dtype || table.dim() != 1 || table.numel() != 256) return {};
    const Node* cast = producer(node.inputs[1]);
    if (cast == nullptr || !is_op(*cast, "Cast")) return {};
    const auto to = static_cast<OnnxType>(integer_attribute(*cast, "to", 0));
    if (to != OnnxType::Int32 && to != OnnxType::Int64) return {};
    by = answers(input_of(*cast, 0));
    return by ? table.contiguous() : Tensor();
  }

  std::optional<Answers> answers(ValueId id) const {
    const Node* node = producer(id);
    if (node == nullptr) return {};
    if (is_made(*node, "ToCodes")) {
      const Attribute dtype = attribute_of(*node->operation, "dtype");
      const auto* stored = std::get_if<DType>(&dtype);
      if (stored == nullptr || *stored != DType::UInt8) return {};
      Answers own{.source = node->inputs[0]};
      for (std::size_t i = 0; i < own.table.size(); ++i) {
        own.table[i] = static_cast<std::uint8_t>(i);
      }
      return own;
    }
    std::optional<Answers> by;
    const Tensor table = looked_up(*node, DType::UInt8, by);
    if (!table.defined()) return {};
    const auto* bytes = static_cast<const std::uint8_t*>(table.data_ptr());
    std::ranges::transform(by->table, by->table.begin(),
                           [bytes](std::uint8_t code) { return bytes[code]; });
    by->looked_up = true;
    return by;
  }

  bool make_codes(Node& node) {
    const std::optional<Answers> found = answers(node.inputs[0]);
    if (!found || !found->looked_up) return false;
    const std::optional<Codes> codes = graph_.values[index_of(node.outputs[0])].codes;
    if (!codes) return false;
    node = made_node(node.name, "MapCodes",
                     quantized::map_codes_operation(std::make_shared<const ByteTable>(found->table),
                                                    codes->scale, codes->zero_point),
                     {found->source}, node.outputs);
    return true;
  }

  bool make_floats(Node& node) {
    std::optional<Answers> by;
    const Tensor table = looked_up(node, DType::Float32, by);
    if (!table.defined()) return false;
    const auto* floats = static_cast<const float*>(table.data_ptr());
    auto result = std::make_shared<FloatTable>();
    std::ranges::transform(by->table, result->begin(),
                           [floats](std::uint8_t code) { return floats[code]; });
    node = made_node(node.name, "MapCodesToFloat",
                     quantized::map_codes_to_float_operation(std::move(result)), {by->source},
                     node.outputs);
    return true;
  }

  Graph& graph_;
  Uses uses_;
};

}  // namespace

bool absorb_tables(Graph& graph) {
  bool changed = false;
  while (move_back(graph)) changed = true;
  return TableAbsorber(graph).run() || changed;
}

}  // namespace quanta::graph
