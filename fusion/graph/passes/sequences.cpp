#include "quanta/fusion/graph/passes/sequences.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

[[noreturn]] void refuse(const Node& node, std::string_view text) {
  throw UnsupportedError(fmt::format(
      "load_onnx: {} '{}': {}: sequences of tensors are supported where their lengths follow from "
      "constants, outside of Loop and Scan",
      node.op, node.name, text));
}

bool makes_sequence(const Node& node) {
  constexpr std::array kOps{"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
                            "SplitToSequence"};
  return std::ranges::find(kOps, std::string_view(node.op)) != kOps.end();
}

bool takes_sequence(const Node& node) {
  constexpr std::array kOps{"ConcatFromSequence", "SequenceAt", "SequenceLength"};
  return std::ranges::find(kOps, std::string_view(node.op)) != kOps.end();
}

/// A node of opset 13 in the place of another one.
Node node_of(const Node& original, std::string_view op, std::vector<ValueId> inputs,
             std::vector<ValueId> outputs, OnnxAttributes attributes = {}) {
  Node node{.name = original.name, .op = std::string(op), .opset = 13};
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.attributes = std::move(attributes);
  node.row = op_table().find("", op, node.opset);
  return node;
}

}  // namespace

std::optional<std::vector<Node>> Sequences::resolve(const Node& node) {
  const bool given =
      std::ranges::any_of(node.inputs, [&](ValueId id) { return sequences_.contains(id); });
  const bool is_onnx = node.domain.empty();
  if (!given && !(is_onnx && (makes_sequence(node) || takes_sequence(node)))) return {};
  const ValueId output = node.outputs.empty() ? kNone : node.outputs[0];
  const bool known = is_onnx && output != kNone &&
                     (makes_sequence(node) || takes_sequence(node) || node.op == "Identity");
  if (!known) refuse(node, "it cannot take a sequence");
  if (node.op == "SplitToSequence") return split(node);
  if (node.op == "SequenceAt") return take(node);
  if (node.op == "ConcatFromSequence") return join(node);
  if (node.op == "SequenceEmpty") {
    sequences_[output] = {};
  } else if (node.op == "SequenceConstruct") {
    sequences_[output] = {.members = node.inputs};
  } else if (node.op == "SequenceLength") {
    const Sequence& sequence = sequence_of(node, 0);
    if (sequence.source != kNone) refuse(node, "the length depends on sizes");
    const auto length = static_cast<std::int64_t>(sequence.members.size());
    graph_.values[index_of(output)].constant = Tensor::from_int64({&length, 1}).view({});
  } else {
    Sequence sequence = sequence_of(node, 0);
    if (node.op != "Identity") {
      if (sequence.source != kNone) refuse(node, "the length depends on sizes");
      auto& members = sequence.members;
      const bool inserts = node.op == "SequenceInsert";
      const std::size_t at = position(node, inserts ? 2 : 1, members.size(), inserts);
      const auto place = members.begin() + static_cast<std::ptrdiff_t>(at);
      if (inserts) {
        members.insert(place, input_of(node, 1));
      } else {
        members.erase(place);
      }
    }
    sequences_[output] = std::move(sequence);
  }
  return std::vector<Node>();
}

void Sequences::check_outputs() const {
  for (const ValueId id : graph_.outputs) {
    if (!sequences_.contains(id)) continue;
    throw UnsupportedError(fmt::format("load_onnx: output '{}': sequences are no results",
                                       graph_.values[index_of(id)].name));
  }
}

const Sequences::Sequence& Sequences::sequence_of(const Node& node, std::size_t input) const {
  const auto found =
      input < node.inputs.size() ? sequences_.find(node.inputs[input]) : sequences_.end();
  if (found == sequences_.end()) refuse(node, "its sequence is not known");
  return found->second;
}

std::size_t Sequences::position(const Node& node, std::size_t input, std::size_t count,
                                bool behind) const {
  const auto size = static_cast<std::int64_t>(count);
  std::int64_t at = behind ? size : size - 1;
  if (input < node.inputs.size() && node.inputs[input] != kNone) {
    const std::vector<std::int64_t> given = constants(node, input);
    if (given.size() != 1) refuse(node, "expected one position");
    at = given[0] < 0 ? given[0] + size : given[0];
  }
  if (at < 0 || at > (behind ? size : size - 1)) {
    throw ArgumentError(
        fmt::format("load_onnx: {} '{}': position: expected one of {} members, got {}", node.op,
                    node.name, size, at));
  }
  return static_cast<std::size_t>(at);
}

std::vector<std::int64_t> Sequences::constants(const Node& node, std::size_t input) const {
  const ValueId id = input < node.inputs.size() ? node.inputs[input] : kNone;
  if (id == kNone || !graph_.is_constant(id)) refuse(node, "a number of it is not constant");
  return graph_.values[index_of(id)].constant.to_int64_vector();
}

std::vector<Node> Sequences::split(const Node& node) {
  Sequence parts{.source = input_of(node, 0), .axis = integer_attribute(node, "axis", 0)};
  if (parts.source == kNone) refuse(node, "it needs a tensor");
  const ValueId output = node.outputs[0];
  if (node.inputs.size() < 2 || node.inputs[1] == kNone) {
    parts.keeps_dimension = integer_attribute(node, "keepdims", 1) != 0;
    sequences_[output] = std::move(parts);
    return {};
  }
  const std::vector<std::int64_t> sizes = constants(node, 1);
  if (graph_.values[index_of(node.inputs[1])].constant.dim() == 0) {
    parts.size = sizes[0];
    if (parts.size < 1) refuse(node, "expected a size > 0");
    sequences_[output] = std::move(parts);
    return {};
  }
  Sequence members;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    members.members.push_back(
        graph_.add_value({.name = fmt::format("{}_{}", node.name, i),
                          .type = graph_.values[index_of(parts.source)].type}));
  }
  std::vector<Node> nodes;
  if (!sizes.empty()) {
    nodes.push_back(node_of(node, "Split", {parts.source, node.inputs[1]}, members.members,
                            {{"axis", parts.axis}}));
  }
  sequences_[output] = std::move(members);
  return nodes;
}

std::vector<Node> Sequences::take(const Node& node) {
  const Sequence& sequence = sequence_of(node, 0);
  const ValueId output = node.outputs[0];
  if (sequence.source == kNone) {
    const std::size_t at = position(node, 1, sequence.members.size(), false);
    return {node_of(node, "Identity", {sequence.members[at]}, {output})};
  }
  const std::vector<std::int64_t> at = constants(node, 1);
  if (at.size() != 1) refuse(node, "expected one position");
  // The last one may be smaller than the others: from the end it is known for size 1 only.
  if (at[0] < 0 && sequence.size != 1) refuse(node, "the length depends on sizes");
  constexpr std::int64_t kEnd = std::int64_t{1} << 60;
  const auto one = [&](std::string_view name, std::int64_t value) {
    return graph_.add_constant(fmt::format("{}_{}", node.name, name),
                               Tensor::from_int64({&value, 1}));
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (at[0] < -kMost || at[0] > kMost || sequence.size > kMost / 2)
    refuse(node, "too many members");
  const std::int64_t begin = at[0] * sequence.size;
  const ValueId axis = one("axis", sequence.axis);
  const ValueId part =
      sequence.keeps_dimension ? output : graph_.add_value({.name = node.name + "_part"});
  std::vector<Node> nodes{node_of(node, "Slice",
                                  {sequence.source, one("begin", begin),
                                   one("end", at[0] == -1 ? kEnd : begin + sequence.size), axis},
                                  {part})};
  if (part != output) nodes.push_back(node_of(node, "Squeeze", {part, axis}, {output}));
  return nodes;
}

std::vector<Node> Sequences::join(const Node& node) {
  const Sequence& sequence = sequence_of(node, 0);
  if (sequence.source != kNone) refuse(node, "the length depends on sizes");
  if (sequence.members.empty()) refuse(node, "the sequence is empty");
  const std::int64_t axis = integer_attribute(node, "axis", 0);
  std::vector<Node> nodes;
  std::vector<ValueId> members = sequence.members;
  if (integer_attribute(node, "new_axis", 0) != 0) {
    const ValueId where = graph_.add_constant(node.name + "_axis", Tensor::from_int64({&axis, 1}));
    for (ValueId& member : members) {
      const ValueId wider = graph_.add_value({.name = node.name + "_member"});
      nodes.push_back(node_of(node, "Unsqueeze", {member, where}, {wider}));
      member = wider;
    }
  }
  nodes.push_back(node_of(node, "Concat", std::move(members), {node.outputs[0]}, {{"axis", axis}}));
  return nodes;
}

}  // namespace quanta::graph
