#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/fusion/graph/passes/sequences.h"
#include "quanta/fusion/graph/run.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

constexpr std::size_t kKeptBytes = std::size_t{1} << 20U;

/// Whether what comes out may be larger than what goes in.
bool can_blow_up(const Node& node) {
  constexpr std::array kOps{"ConstantOfShape", "Expand", "Tile",    "Range", "Pad",
                            "Resize",          "OneHot", "Upsample"};
  return std::find(kOps.begin(), kOps.end(), std::string_view(node.op)) != kOps.end();
}

bool is_random(const Node& node) {
  return node.op.starts_with("Random") || node.op == "Bernoulli" || node.op == "Multinomial";
}

/// Copies the chosen branch of an If into the graph, in the node's place.
std::vector<Node> inline_graph(Graph& graph, const Node& node, const Graph& body,
                               std::span<const ValueId> inputs) {
  std::vector<ValueId> moved(body.values.size(), kNone);
  for (std::size_t i = 0; i < body.inputs.size(); ++i) moved[index_of(body.inputs[i])] = inputs[i];
  for (std::size_t i = 0; i < body.outputs.size() && i < node.outputs.size(); ++i) {
    ValueId& target = moved[index_of(body.outputs[i])];
    if (target == kNone && !body.is_constant(body.outputs[i]) && node.outputs[i] != kNone) {
      target = node.outputs[i];
    }
  }
  for (std::size_t i = 0; i < body.values.size(); ++i) {
    if (moved[i] != kNone) continue;
    Value value = body.values[i];
    value.name = node.name + "/" + value.name;
    moved[i] = graph.add_value(std::move(value));
  }
  std::vector<Node> nodes;
  for (Node inner : body.nodes) {
    inner.name = node.name + "/" + inner.name;
    for (ValueId& id : inner.inputs) id = id == kNone ? kNone : moved[index_of(id)];
    for (ValueId& id : inner.outputs) id = id == kNone ? kNone : moved[index_of(id)];
    nodes.push_back(std::move(inner));
  }
  // A branch may give a constant or what it was given: then nothing makes the node's output yet.
  for (std::size_t i = 0; i < body.outputs.size() && i < node.outputs.size(); ++i) {
    const ValueId made = moved[index_of(body.outputs[i])];
    if (node.outputs[i] == kNone || made == node.outputs[i]) continue;
    if (graph.is_constant(made)) {
      graph.values[index_of(node.outputs[i])].constant = graph.values[index_of(made)].constant;
      continue;
    }
    Node copy{.name = fmt::format("{}/result_{}", node.name, i), .op = "Identity", .opset = 13};
    copy.row = op_table().find("", "Identity", copy.opset);
    copy.inputs = {made};
    copy.outputs = {node.outputs[i]};
    nodes.push_back(std::move(copy));
  }
  return nodes;
}

class Folder {
 public:
  Folder(Graph& graph, Fold fold) : graph_(graph), fold_(fold), sequences_(graph) {}

  bool run() {
    std::vector<Node> todo = std::move(graph_.nodes);
    std::reverse(todo.begin(), todo.end());
    std::vector<Node> kept;
    while (!todo.empty()) {
      Node node = std::move(todo.back());
      todo.pop_back();
      if (take_branch(node, todo) || resolve_sequence(node, todo) || evaluate(node)) {
        changed_ = true;
        continue;
      }
      fold_inside(node);
      kept.push_back(std::move(node));
    }
    graph_.nodes = std::move(kept);
    sequences_.check_outputs();
    return erase_dead(graph_) || changed_;
  }

 private:
  bool take_branch(const Node& node, std::vector<Node>& todo) {
    if (node.op != "If" || !node.domain.empty() || node.inputs.empty() ||
        !graph_.is_constant(node.inputs[0])) {
      return false;
    }
    const Tensor& condition = graph_.values[index_of(node.inputs[0])].constant;
    if (condition.numel() != 1) return false;
    const auto body = node.graphs.find(condition.item() != 0.0 ? "then_branch" : "else_branch");
    if (body == node.graphs.end()) return false;
    const std::span<const ValueId> captured(node.inputs.data() + 1, node.inputs.size() - 1);
    std::vector<Node> inner = inline_graph(graph_, node, *body->second, captured);
    todo.insert(todo.end(), std::make_move_iterator(inner.rbegin()),
                std::make_move_iterator(inner.rend()));
    return true;
  }

  bool resolve_sequence(const Node& node, std::vector<Node>& todo) {
    std::optional<std::vector<Node>> nodes = sequences_.resolve(node);
    if (!nodes) return false;
    todo.insert(todo.end(), std::make_move_iterator(nodes->rbegin()),
                std::make_move_iterator(nodes->rend()));
    return true;
  }

  bool evaluate(const Node& node) {
    if (node.row == nullptr || !node.graphs.empty() || is_random(node)) return false;
    if (fold_ == Fold::AllButCodes && node.op == "DequantizeLinear") return false;
    std::vector<Tensor> inputs;
    std::vector<OnnxType> types;
    for (const ValueId id : node.inputs) {
      if (id != kNone && !graph_.is_constant(id)) return false;
      inputs.push_back(id == kNone ? Tensor() : graph_.values[index_of(id)].constant);
      types.push_back(id == kNone ? OnnxType::Undefined : graph_.values[index_of(id)].type);
    }
    const Outputs results = run_node(node, nullptr, inputs, types);
    if (can_blow_up(node)) {
      for (const Tensor& y : results) {
        if (y.defined() && y.nbytes() > kKeptBytes) return false;
      }
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      Value& value = graph_.values[index_of(node.outputs[i])];
      // A view would keep a whole weight alive for the sake of a part of it.
      value.constant = results[i];
      if (value.type == OnnxType::Undefined) value.type = onnx_type_of(results[i].dtype());
    }
    return true;
  }

  /// What is captured and constant is constant within as well.
  void fold_inside(Node& node) const {
    for (auto& [name, body] : node.graphs) {
      auto copy = std::make_shared<Graph>(*body);
      const std::size_t formal = copy->inputs.size() - node.captured;
      const std::size_t first = node.inputs.size() - node.captured;
      for (std::size_t i = 0; i < node.captured; ++i) {
        const ValueId outside = node.inputs[first + i];
        if (!graph_.is_constant(outside)) continue;
        // The input stays, so that all graphs of the node have the same; nobody takes it any more.
        const ValueId inside = copy->inputs[formal + i];
        const ValueId constant = copy->add_value(graph_.values[index_of(outside)]);
        for (Node& user : copy->nodes) {
          std::replace(user.inputs.begin(), user.inputs.end(), inside, constant);
        }
        std::replace(copy->outputs.begin(), copy->outputs.end(), inside, constant);
      }
      fold_constants(*copy, fold_);
      body = std::move(copy);
    }
  }

  Graph& graph_;
  Fold fold_;
  Sequences sequences_;
  bool changed_ = false;
};

}  // namespace

bool bind_constants(Graph& graph, const NamedTensors& constants) {
  for (const auto& [name, tensor] : constants) {
    const auto found = std::find_if(graph.inputs.begin(), graph.inputs.end(),
                                    [&, key = std::string_view(name)](ValueId id) {
                                      return graph.values[index_of(id)].name == key;
                                    });
    QUANTA_CHECK(found != graph.inputs.end(),
                 "load_onnx: constants: expected names of inputs, got '{}'", name);
    Value& value = graph.values[index_of(*found)];
    const std::optional<DType> wanted = dtype_of(value.type);
    QUANTA_CHECK(tensor.defined() && (!wanted || tensor.dtype() == *wanted),
                 "load_onnx: constants: '{}': expected {}, got {}", name, to_string(value.type),
                 tensor.defined() ? to_string(tensor.dtype()) : "none");
    value.constant = tensor;
    graph.inputs.erase(found);
  }
  return !constants.empty();
}

bool fold_constants(Graph& graph, Fold fold) { return Folder(graph, fold).run(); }

}  // namespace quanta::graph
