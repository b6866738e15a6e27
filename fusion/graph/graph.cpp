#include "quanta/fusion/graph/graph.h"

#include <algorithm>
#include <string>
#include <utility>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

template <typename Taken>
std::string unique_name(std::string_view base, const Taken& is_taken) {
  std::string name(base);
  for (int i = 2; is_taken(name); ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

std::string value_text(const Graph& graph, ValueId id) {
  if (id == kNone) return "-";
  const Value& value = graph.values[index_of(id)];
  std::string text = "%" + value.name;
  if (value.constant.defined()) {
    text +=
        fmt::format(" {} [{}]", value.constant.dtype(), fmt::join(value.constant.sizes(), ", "));
  }
  if (value.codes) {
    text += fmt::format(" as {}({}, {})", value.codes->dtype, value.codes->scale,
                        value.codes->zero_point);
  }
  return text;
}

template <typename T>
const T* attribute_of(const Node& node, std::string_view name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

}  // namespace

ValueId Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::add_constant(std::string constant_name, Tensor constant) {
  const OnnxType type = onnx_type_of(constant.dtype());
  return add_value(
      {.name = std::move(constant_name), .constant = std::move(constant), .type = type});
}

std::string Graph::unique_value_name(std::string_view base) const {
  return unique_name(base, [this](const std::string& text) {
    return std::any_of(values.begin(), values.end(),
                       [&text](const Value& value) { return value.name == text; });
  });
}

bool Graph::is_constant(ValueId id) const {
  return id != kNone && values.at(index_of(id)).constant.defined();
}
bool Graph::is_input(ValueId id) const {
  return std::find(inputs.begin(), inputs.end(), id) != inputs.end();
}
bool Graph::is_output(ValueId id) const {
  return std::find(outputs.begin(), outputs.end(), id) != outputs.end();
}

NodeId Graph::producer(ValueId id) const {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto& made = nodes[i].outputs;
    if (std::find(made.begin(), made.end(), id) != made.end()) return static_cast<NodeId>(i);
  }
  return kNone;
}

std::vector<NodeId> Graph::users(ValueId id) const {
  std::vector<NodeId> found;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto& taken = nodes[i].inputs;
    if (std::find(taken.begin(), taken.end(), id) != taken.end()) {
      found.push_back(static_cast<NodeId>(i));
    }
  }
  return found;
}

void Graph::replace_all_uses(ValueId from, ValueId to) {
  for (Node& node : nodes) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  if (!is_output(from)) return;
  // The result is known to the caller by its name.
  std::swap(values.at(index_of(from)).name, values.at(index_of(to)).name);
  std::replace(outputs.begin(), outputs.end(), from, to);
}

Uses::Uses(const Graph& graph)
    : producers_(graph.values.size(), kNone),
      users_(graph.values.size()),
      is_output_(graph.values.size(), false) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id != kNone) producers_[index_of(id)] = node;
    }
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id == kNone) continue;
      auto& users = users_[index_of(id)];
      if (users.empty() || users.back() != node) users.push_back(node);
    }
  }
  for (const ValueId id : graph.outputs) is_output_[index_of(id)] = true;
}

bool Uses::used_once(ValueId id) const {
  return !is_output_[index_of(id)] && users_[index_of(id)].size() == 1;
}

bool erase_dead(Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  for (const ValueId id : graph.outputs) live[index_of(id)] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    keep[i] = std::any_of(node.outputs.begin(), node.outputs.end(),
                          [&live](ValueId id) { return id != kNone && live[index_of(id)]; });
    if (!keep[i]) continue;
    for (const ValueId id : node.inputs) {
      if (id != kNone) live[index_of(id)] = true;
    }
  }
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) nodes.push_back(std::move(graph.nodes[i]));
  }
  const bool changed = nodes.size() != graph.nodes.size();
  graph.nodes = std::move(nodes);

  // Inputs stay although nobody takes them; so do results of nodes that stay.
  for (const ValueId id : graph.inputs) live[index_of(id)] = true;
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.outputs) {
      if (id != kNone) live[index_of(id)] = true;
    }
  }
  std::vector<ValueId> moved(graph.values.size(), kNone);
  std::vector<Value> values;
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    moved[i] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[i]));
  }
  const bool fewer = values.size() != graph.values.size();
  graph.values = std::move(values);
  const auto move_all = [&moved](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id != kNone) id = moved[index_of(id)];
    }
  };
  for (Node& node : graph.nodes) {
    move_all(node.inputs);
    move_all(node.outputs);
  }
  move_all(graph.inputs);
  move_all(graph.outputs);
  return changed || fewer;
}

std::string to_string(const Graph& graph) {
  std::string text = fmt::format("graph {}(", graph.name);
  for (const ValueId id : graph.inputs) text += value_text(graph, id) + ", ";
  if (!graph.inputs.empty()) text.resize(text.size() - 2);
  text += ")\n";
  for (const Node& node : graph.nodes) {
    std::vector<std::string> made;
    std::vector<std::string> taken;
    for (const ValueId id : node.outputs) made.push_back(value_text(graph, id));
    for (const ValueId id : node.inputs) taken.push_back(value_text(graph, id));
    std::string what = node.domain.empty() ? node.op : node.domain + "." + node.op;
    if (node.operation) what = to_string(*node.operation);
    if (!node.module.empty()) what = fmt::format("module '{}'", node.module);
    text += fmt::format("  {} = {}({})\n", fmt::join(made, ", "), what, fmt::join(taken, ", "));
  }
  std::vector<std::string> results;
  for (const ValueId id : graph.outputs) results.push_back(value_text(graph, id));
  return text + fmt::format("  return {}\n", fmt::join(results, ", "));
}

std::string fingerprint(const Graph& graph) {
  std::string text;
  const auto add = [&](const std::vector<ValueId>& ids, bool constants) {
    for (const ValueId id : ids) {
      // What a layer holds is the layer's business.
      if (constants || !graph.is_constant(id)) text += value_text(graph, id) + ", ";
    }
    text += ";\n";
  };
  add(graph.inputs, true);
  for (const Node& node : graph.nodes) {
    text += fmt::format("{}.{} {} {}: ", node.domain, node.op, node.module,
                        node.operation ? to_string(*node.operation) : "");
    add(node.inputs, node.module.empty());
    add(node.outputs, true);
    for (const auto& [name, body] : node.graphs) text += name + fingerprint(*body);
  }
  add(graph.outputs, true);
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  return fmt::format("{} nodes, {:016x}", graph.nodes.size(), hash);
}

std::int64_t integer_attribute(const Node& node, std::string_view name, std::int64_t otherwise) {
  const auto* value = attribute_of<std::int64_t>(node, name);
  return value == nullptr ? otherwise : *value;
}
double number_attribute(const Node& node, std::string_view name, double otherwise) {
  const auto* value = attribute_of<float>(node, name);
  return value == nullptr ? otherwise : static_cast<double>(*value);
}
std::string text_attribute(const Node& node, std::string_view name, std::string_view otherwise) {
  const auto* value = attribute_of<std::string>(node, name);
  return value == nullptr ? std::string(otherwise) : *value;
}
std::vector<std::int64_t> list_attribute(const Node& node, std::string_view name) {
  const auto* value = attribute_of<std::vector<std::int64_t>>(node, name);
  return value == nullptr ? std::vector<std::int64_t>() : *value;
}

}  // namespace quanta::graph
