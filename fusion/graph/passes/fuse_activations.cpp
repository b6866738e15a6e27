#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"

// Activation functions that exporters write as several operators, because the opset had none or the
// framework has none: what they are made of is looked for from the last operator back.

namespace quanta::graph {
namespace {

/// Reads patterns from their end.
class Pattern {
 public:
  Pattern(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  /// The node of this operator that makes the value, where the one node at the end of the pattern
  /// that takes it is the only one.
  const Node* part(ValueId id, std::string_view op) const {
    if (id == kNone || !uses_.used_once(id)) return nullptr;
    const NodeId made = uses_.producer(id);
    if (made == kNone) return nullptr;
    const Node& node = graph_.nodes[index_of(made)];
    return is_op(node, op) && !node.inputs.empty() ? &node : nullptr;
  }
  /// A constant number that every element meets.
  std::optional<double> number(const Node& node, std::size_t i) const {
    const Tensor constant = constant_input(graph_, node, i);
    if (!constant.defined() || constant.dtype() != DType::Float32 || constant.numel() != 1 ||
        constant.dim() > 1) {
      return {};
    }
    return constant.item();
  }
  bool is_number(const Node& node, std::size_t i, double wanted) const {
    const std::optional<double> found = number(node, i);
    return found && std::fabs(*found - wanted) <= 1e-6 * std::fabs(wanted);
  }
  /// Of a node with two operands, one of which is this number, the other; else kNone.
  ValueId beside(const Node& node, double wanted) const {
    if (node.inputs.size() != 2) return kNone;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      if (is_number(node, 1 - i, wanted)) return node.inputs[i];
    }
    return kNone;
  }
  /// x where the node is x / wanted, as a division or a multiplication.
  ValueId divided_by(const Node& node, double wanted) const {
    if (is_op(node, "Div") && node.inputs.size() == 2) {
      return is_number(node, 1, wanted) ? node.inputs[0] : kNone;
    }
    return is_op(node, "Mul") ? beside(node, 1.0 / wanted) : kNone;
  }
  /// The same of the node that makes a value for one other alone.
  ValueId part_divided_by(ValueId id, double wanted) const {
    for (const std::string_view op : {"Div", "Mul"}) {
      const Node* node = part(id, op);
      if (node != nullptr) return divided_by(*node, wanted);
    }
    return kNone;
  }
  /// x where the value is clip(x + 3, 0, 6).
  ValueId clipped(ValueId id) const {
    const Node* clip = part(id, "Clip");
    if (clip == nullptr) return kNone;
    const bool attributes = clip->opset < 11;
    const bool zero = attributes ? number_attribute(*clip, "min", -1.0) == 0.0
                                 : number(*clip, 1).value_or(-1.0) == 0.0;
    const bool six =
        attributes ? number_attribute(*clip, "max", 0.0) == 6.0 : is_number(*clip, 2, 6.0);
    const Node* add = zero && six ? part(clip->inputs[0], "Add") : nullptr;
    return add == nullptr ? kNone : beside(*add, 3.0);
  }
  /// x where the value is the sigmoid of x, hard or not.
  ValueId hard_sigmoid(ValueId id) const {
    if (const Node* whole = part(id, "HardSigmoid")) {
      const bool is_torchs = std::fabs(number_attribute(*whole, "alpha", 0.2) - 1.0 / 6.0) < 1e-6 &&
                             number_attribute(*whole, "beta", 0.5) == 0.5;
      return is_torchs ? whole->inputs[0] : kNone;
    }
    const ValueId clip = part_divided_by(id, 6.0);
    return clip == kNone ? kNone : clipped(clip);
  }
  ValueId sigmoid(ValueId id) const {
    const Node* node = part(id, "Sigmoid");
    return node == nullptr ? kNone : node->inputs[0];
  }
  /// x where the value is 1 + erf(x / sqrt(2)).
  ValueId one_and_erf(ValueId id) const {
    const Node* add = part(id, "Add");
    const Node* erf = add == nullptr ? nullptr : part(beside(*add, 1.0), "Erf");
    return erf == nullptr ? kNone : part_divided_by(erf->inputs[0], std::numbers::sqrt2);
  }
  /// x where the node is x * function(x).
  template <typename Function>
  ValueId gated(const Node& node, const Function& function) const {
    if (!is_op(node, "Mul") || node.inputs.size() != 2) return kNone;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const ValueId x = node.inputs[i];
      if (x != kNone && function(node.inputs[1 - i]) == x) return x;
    }
    return kNone;
  }

 private:
  const Graph& graph_;
  const Uses& uses_;
};

/// An operator of one input that a node is the end of.
struct Found {
  std::string_view op;
  std::int64_t since = 1;
  ValueId x = kNone;
  OnnxAttributes attributes{};
};

std::optional<Found> hardswish_at(const Pattern& pattern, const Node& node) {
  constexpr std::int64_t kSince = 14;
  const auto clipped = [&](ValueId id) { return pattern.clipped(id); };
  const auto gate = [&](ValueId id) { return pattern.hard_sigmoid(id); };
  ValueId x = pattern.gated(node, gate);
  if (x == kNone) {
    // x * clip / 6
    const Node* product = pattern.part(pattern.divided_by(node, 6.0), "Mul");
    if (product != nullptr) x = pattern.gated(*product, clipped);
  }
  if (x == kNone) return {};
  return Found{"HardSwish", kSince, x};
}

std::optional<Found> hard_sigmoid_at(const Pattern& pattern, const Node& node) {
  const ValueId clip = pattern.divided_by(node, 6.0);
  const ValueId x = clip == kNone ? kNone : pattern.clipped(clip);
  if (x == kNone) return {};
  return Found{"HardSigmoid", 6, x, {{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}}};
}

std::optional<Found> swish_at(const Pattern& pattern, const Node& node) {
  constexpr std::int64_t kSince = 24;
  const ValueId x = pattern.gated(node, [&](ValueId id) { return pattern.sigmoid(id); });
  if (x == kNone) return {};
  return Found{"Swish", kSince, x};
}

/// The half may stand at any factor of x * (1 + erf(x / sqrt(2))) / 2.
std::optional<Found> gelu_at(const Pattern& pattern, const Node& node) {
  constexpr std::int64_t kSince = 20;
  const auto gate = [&](ValueId id) { return pattern.one_and_erf(id); };
  const auto half_gate = [&](ValueId id) {
    const ValueId whole = pattern.part_divided_by(id, 2.0);
    return whole == kNone ? kNone : gate(whole);
  };
  ValueId x = pattern.gated(node, half_gate);
  if (x == kNone) {
    const Node* product = pattern.part(pattern.divided_by(node, 2.0), "Mul");
    if (product != nullptr) x = pattern.gated(*product, gate);
  }
  const bool is_product = is_op(node, "Mul") && node.inputs.size() == 2;
  for (std::size_t i = 0; x == kNone && is_product && i < 2; ++i) {
    // (x / 2) * (1 + erf)
    const ValueId inner = gate(node.inputs[1 - i]);
    if (inner != kNone && pattern.part_divided_by(node.inputs[i], 2.0) == inner) x = inner;
  }
  if (x == kNone) return {};
  return Found{"Gelu", kSince, x};
}

}  // namespace

bool fuse_activations(Graph& graph) {
  constexpr std::array kFinders{hardswish_at, swish_at, gelu_at, hard_sigmoid_at};
  bool changed = false;
  const Uses uses(graph);
  const Pattern pattern(graph, uses);
  // From the end back: what is part of a longer pattern is found as that first.
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (node->outputs.size() != 1 || !node->domain.empty() || !is_plain(*node)) continue;
    for (const auto& find : kFinders) {
      std::optional<Found> found = find(pattern, *node);
      if (!found) continue;
      node->op = found->op;
      node->opset = std::max(node->opset, found->since);
      node->row = op_table().find("", node->op, node->opset);
      node->inputs = {found->x};
      node->attributes = std::move(found->attributes);
      changed = true;
      break;
    }
  }
  if (changed) erase_dead(graph);
  return changed;
}

}  // namespace quanta::graph
