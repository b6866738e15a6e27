#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/passes/lowering.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/quantize_linear.h"
#include "quanta/runtime/operation.h"

// Add, Mul, Concat and means of codes.

namespace quanta::graph {
namespace {

/// Tensors of the same codes, joined.
struct JoinCodes final : ComposedOp<JoinCodes> {
  static constexpr std::string_view kName = "join_codes";
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(1);
  std::int64_t axis = 0;

  JoinCodes() = default;
  explicit JoinCodes(std::int64_t dim) : axis(dim) {}
  std::vector<Tensor> compose(const Arguments& in) const override {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < in.size(); ++i) parts.push_back(in[i]);
    return {cat(parts, axis)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<JoinCodes, &JoinCodes::axis>("axis")};
    return kTable;
  }
};

}  // namespace

bool Lowering::lower_binary(const Node& node) {
  const bool adds = node.op == "Add" || (node.op == "Sum" && node.inputs.size() == 2);
  if ((!adds && node.op != "Mul") || node.inputs.size() != 2) return false;
  if (!is_coded(node.inputs[0]) && !is_coded(node.inputs[1])) return false;
  const std::optional<Wanted> want = wanted(node.outputs[0]);
  if (!want) return false;
  const std::optional<ValueId> left = coded_operand(node.inputs[0]);
  const std::optional<ValueId> right = coded_operand(node.inputs[1]);
  if (!left || !right) {
    reason = "one of its operands is not in 8-bit codes";
    return false;
  }
  const std::string_view name = adds ? (want->relu ? "quantized::add_relu" : "quantized::add")
                                     : (want->relu ? "quantized::mul_relu" : "quantized::mul");
  emit_wanted(node, *want, [&](ValueId result) {
    Node lowered = made_node(node.name, node.op,
                             make_operation(name, {{"scale", want->codes.scale},
                                                   {"zero_point", want->codes.zero_point}}),
                             {*left, *right}, {result});
    emit(std::move(lowered));
  });
  return true;
}

// torch's means of codes are codes with the same parameters, in integer arithmetic.
bool Lowering::lower_torch_mean(const Node& node) {
  const bool is_mean = node.op == "AveragePool" || node.op == "GlobalAveragePool";
  if (!torch_arithmetic || !is_mean || node.inputs.empty() || !is_coded(node.inputs[0])) {
    return false;
  }
  const std::optional<Wanted> want = wanted(node.outputs[0]);
  if (!want || want->relu || want->clips() || want->codes != *codes(node.inputs[0])) return false;
  for (const NodeId id : want->consumed) done[index_of(id)] = true;
  Node on_codes = node;
  on_codes.outputs = {want->result};
  emit(std::move(on_codes));
  return true;
}

bool Lowering::lower_mean(const Node& node) {
  if (node.op != "GlobalAveragePool" || node.inputs.empty() || !is_coded(node.inputs[0])) {
    return false;
  }
  emit(made_node(node.name, node.op, make_operation("quantized::global_mean_to_float"),
                 {node.inputs[0]}, {node.outputs[0]}));
  return true;
}

bool Lowering::lower_concat(const Node& node) {
  if (node.op != "Concat" || node.inputs.empty()) return false;
  if (std::ranges::none_of(node.inputs, [&](ValueId id) { return table_of(id).has_value(); })) {
    return false;
  }
  if (is_coded(node.outputs[0])) {  // all have these codes, as spread_codes has found
    emit(made_node(node.name, node.op,
                   std::make_shared<JoinCodes>(integer_attribute(node, "axis", 1)), node.inputs,
                   node.outputs));
    return true;
  }
  const std::optional<Wanted> want = wanted(node.outputs[0]);
  if (!want) return false;
  // Each is a function of codes.
  std::vector<ValueTable> tables;
  for (const ValueId id : node.inputs) {
    std::optional<ValueTable> table = table_of(id);
    if (!table) {
      if (const std::optional<ValueId> constant = coded_operand(id)) table = table_of(*constant);
    }
    if (!table) {
      reason = "one of its operands is not in 8-bit codes";
      return false;
    }
    tables.push_back(*table);
  }
  // Relu and clip are the table's business as well.
  for (const NodeId id : want->consumed) done[index_of(id)] = true;
  const std::uint8_t low =
      want->relu ? static_cast<std::uint8_t>(want->codes.zero_point) : want->low;
  std::vector<ValueId> operands;
  for (const auto& [source, answers] : tables) {
    auto bytes = std::make_shared<ByteTable>(*codes_table(answers, want->codes, torch_arithmetic));
    bool same = *codes(source) == want->codes;
    for (std::size_t i = 0; i < bytes->size(); ++i) {
      (*bytes)[i] = std::min(std::max((*bytes)[i], low), want->high);
      same = same && (*bytes)[i] == i;
    }
    if (same) {
      operands.push_back(source);
      continue;
    }
    const std::string name = graph.values[index_of(source)].name + "_for_" + node.name;
    const ValueId moved = add_coded(name, want->codes);
    emit(made_node(name, "MapCodes",
                   quantized::map_codes_operation(bytes, want->codes.scale, want->codes.zero_point),
                   {source}, {moved}));
    operands.push_back(moved);
  }
  emit(made_node(node.name, node.op,
                 std::make_shared<JoinCodes>(integer_attribute(node, "axis", 1)), operands,
                 {want->result}));
  return true;
}

}  // namespace quanta::graph
