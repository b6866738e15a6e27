// Files become graphs: names become ids, functions are written out where they are called, graphs
// within nodes say what they capture.

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

constexpr std::size_t kMaxInlinedNodes = 1'000'000;
constexpr int kMaxFunctionDepth = 32;

using Opsets = std::map<std::string, std::int64_t, std::less<>>;

std::string plain_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

/// Operators that Quanta does not have, as they are met.
class Unknown {
 public:
  void add(const Node& node) {
    auto& names = names_[fmt::format("{}{}{} (opset {})", node.domain,
                                     node.domain.empty() ? "" : ".", node.op, node.opset)];
    names.push_back(node.name);
  }
  void check() const {
    if (names_.empty()) return;
    std::vector<std::string> lines;
    for (const auto& [what, nodes] : names_) {
      lines.push_back(fmt::format("{}: {} node{}, the first is '{}'", what, nodes.size(),
                                  nodes.size() == 1 ? "" : "s", nodes.front()));
    }
    throw UnsupportedError(fmt::format(
        "load_onnx: the file has operators that Quanta does not have (a row of your own "
        "can be added with register_onnx_op):\n  {}",
        fmt::join(lines, "\n  ")));
  }

 private:
  std::map<std::string, std::vector<std::string>> names_;
};

/// The names of a graph and those around it.
struct Scope {
  Scope* outer = nullptr;
  Graph* graph = nullptr;
  std::map<std::string, ValueId, std::less<>> ids{};
  std::vector<std::string> captures{};  ///< names of the outer scopes, in the order of their inputs
};

/// What a function's call puts in place of its names and attributes.
struct Frame {
  const OnnxFunction* function = nullptr;
  const Frame* caller = nullptr;
  const Opsets* opsets = nullptr;
  std::string prefix{};  ///< of the names of nodes and inner values
  OnnxAttributes attributes{};
};

class Importer {
 public:
  explicit Importer(const OnnxModel& model) : model_(model) {
    for (const OnnxFunction& function : model.functions) {
      functions_[{plain_domain(function.domain), function.name, function.overload}] = &function;
    }
  }

  Graph run() {
    Graph graph;
    Scope scope{.graph = &graph};
    const Frame frame{.opsets = &model_.opsets};
    fill(model_.graph, scope, frame);
    unknown_.check();
    return graph;
  }

 private:
  void fill(const OnnxGraph& file, Scope& scope, const Frame& frame) {
    Graph& graph = *scope.graph;
    graph.name = file.name;
    std::map<std::string_view, const OnnxValue*> declared;
    for (const auto* list : {&file.values, &file.outputs, &file.inputs}) {
      for (const OnnxValue& value : *list) declared[value.name] = &value;
    }
    for (const OnnxTensor& weight : file.initializers) {
      if (!weight.value.defined()) {
        throw UnsupportedError(fmt::format("load_onnx: weight '{}': Quanta has no tensors of {}",
                                           weight.name, to_string(weight.type)));
      }
      const ValueId id = graph.add_constant(weight.name, weight.value);
      graph.values.back().type = weight.type;
      define(scope, weight.name, id);
    }
    for (const OnnxValue& input : file.inputs) {
      if (scope.ids.contains(input.name)) continue;  // a weight that older files list here too
      const ValueId id =
          graph.add_value({.name = input.name, .type = input.type, .sizes = input.sizes});
      define(scope, input.name, id);
      graph.inputs.push_back(id);
    }
    for (const OnnxNode* node : in_order(file.nodes, scope)) {
      add_node(*node, scope, frame, declared);
    }
    for (const OnnxValue& output : file.outputs) {
      const ValueId id = find(scope, output.name);
      if (id == kNone) {
        throw FileError(
            fmt::format("graph '{}': output '{}': no node makes it", file.name, output.name));
      }
      graph.outputs.push_back(id);
    }
  }

  using Declared = std::map<std::string_view, const OnnxValue*>;

  static void define(Scope& scope, const std::string& name, ValueId id) {
    if (!scope.ids.emplace(name, id).second) {
      throw FileError(fmt::format("graph '{}': value '{}' is made twice", scope.graph->name, name));
    }
  }

  /// The value of that name; one of an outer graph becomes an input. kNone where there is none.
  ValueId find(Scope& scope, const std::string& name) {
    const auto found = scope.ids.find(name);
    if (found != scope.ids.end()) return found->second;
    if (scope.outer == nullptr) return kNone;
    const ValueId outside = find(*scope.outer, name);
    if (outside == kNone) return kNone;
    const Value& value = scope.outer->graph->values[static_cast<std::size_t>(outside)];
    const ValueId id =
        scope.graph->add_value({.name = name, .type = value.type, .sizes = value.sizes});
    scope.ids.emplace(name, id);
    scope.captures.push_back(name);
    return id;
  }

  static void collect_needs(const OnnxNode& node, std::set<std::string_view>& needs) {
    for (const std::string& name : node.inputs) {
      if (!name.empty()) needs.insert(name);
    }
    const auto inside = [&needs](const std::shared_ptr<const OnnxGraph>& graph) {
      if (graph == nullptr) return;
      for (const OnnxNode& inner : graph->nodes) collect_needs(inner, needs);
      for (const OnnxValue& output : graph->outputs) needs.insert(output.name);
    };
    for (const auto& [name, value] : node.attributes) {
      if (const auto* one = std::get_if<std::shared_ptr<const OnnxGraph>>(&value)) inside(*one);
    }
  }

  /// Nodes each behind those whose results it takes. Files should be so already.
  static std::vector<const OnnxNode*> in_order(const std::vector<OnnxNode>& nodes,
                                               const Scope& scope) {
    std::map<std::string_view, std::size_t> makers;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const std::string& name : nodes[i].outputs) {
        if (!name.empty()) makers.emplace(name, i);
      }
    }
    std::vector<std::vector<std::size_t>> users(nodes.size());
    std::vector<std::size_t> missing(nodes.size(), 0);
    std::set<std::size_t> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      std::set<std::string_view> needs;
      collect_needs(nodes[i], needs);
      for (const std::string_view name : needs) {
        const auto maker = makers.find(name);
        if (maker == makers.end() || maker->second == i) continue;
        users[maker->second].push_back(i);
        ++missing[i];
      }
      if (missing[i] == 0) ready.insert(i);
    }
    std::vector<const OnnxNode*> sorted;
    while (!ready.empty()) {
      const std::size_t next = *ready.begin();
      ready.erase(ready.begin());
      sorted.push_back(&nodes[next]);
      for (const std::size_t user : users[next]) {
        if (--missing[user] == 0) ready.insert(user);
      }
    }
    if (sorted.size() != nodes.size()) {
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (missing[i] == 0) continue;
        throw FileError(fmt::format("graph '{}': {} '{}': waits for its own result in a cycle",
                                    scope.graph->name, nodes[i].op_type, nodes[i].name));
      }
    }
    return sorted;
  }

  void add_node(const OnnxNode& file, Scope& scope, const Frame& frame, const Declared& declared) {
    if (++nodes_ > kMaxInlinedNodes) {
      throw FileError(
          fmt::format("more than {} nodes when functions are written out", kMaxInlinedNodes));
    }
    Node node;
    node.op = file.op_type;
    node.domain = plain_domain(file.domain);
    node.attributes = file.attributes;
    resolve_references(file.references, frame, node.attributes);
    const std::string base = file.name.empty() ? first_output(file) : file.name;
    node.name = frame.prefix + base;
    const auto function = functions_.find({node.domain, node.op, file.overload});
    const auto opset = frame.opsets->find(node.domain);
    const auto opset_of_default = frame.opsets->find("ai.onnx");
    if (opset != frame.opsets->end()) {
      node.opset = opset->second;
    } else if (node.domain.empty() && opset_of_default != frame.opsets->end()) {
      node.opset = opset_of_default->second;
    } else {
      node.opset = 1;
    }
    if (function != functions_.end()) {
      inline_function(file, node, *function->second, scope, frame);
      return;
    }
    node.name = unique(node.name);
    node.row = op_table().find(node.domain, node.op, node.opset);
    if (node.row == nullptr) unknown_.add(node);

    std::map<std::string, Scope> inner;
    std::map<std::string, std::shared_ptr<Graph>> graphs;
    for (auto attribute = node.attributes.begin(); attribute != node.attributes.end();) {
      const auto* graph = std::get_if<std::shared_ptr<const OnnxGraph>>(&attribute->second);
      if (graph == nullptr || *graph == nullptr) {
        ++attribute;
        continue;
      }
      auto body = std::make_shared<Graph>();
      Scope& body_scope = inner[attribute->first];
      body_scope = {.outer = &scope, .graph = body.get()};
      fill(**graph, body_scope, frame);
      graphs[attribute->first] = std::move(body);
      attribute = node.attributes.erase(attribute);
    }

    for (const std::string& name : file.inputs) {
      if (name.empty()) {
        node.inputs.push_back(kNone);
        continue;
      }
      const ValueId id = find(scope, name);
      if (id == kNone) {
        throw FileError(fmt::format("{} '{}': input '{}': no node, input or weight has this name",
                                    node.op, node.name, name));
      }
      node.inputs.push_back(id);
    }
    capture(node, scope, inner, graphs);
    for (const std::string& name : file.outputs) {
      if (name.empty()) {
        node.outputs.push_back(kNone);
        continue;
      }
      Value value{.name = frame.prefix + name};
      const auto known = declared.find(name);
      if (known != declared.end() && frame.function == nullptr) {
        value.type = known->second->type;
        value.sizes = known->second->sizes;
      }
      if (value.type == OnnxType::Undefined) value.type = followed_type(node, *scope.graph);
      const ValueId id = scope.graph->add_value(std::move(value));
      define(scope, name, id);
      node.outputs.push_back(id);
    }
    scope.graph->nodes.push_back(std::move(node));
  }

  /// The captured values of all graphs within a node become the node's last inputs, the same for
  /// each of them.
  void capture(Node& node, Scope& scope, std::map<std::string, Scope>& inner,
               std::map<std::string, std::shared_ptr<Graph>>& graphs) {
    std::vector<std::string> names;
    for (const auto& [attribute, body] : inner) {
      for (const std::string& name : body.captures) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    for (auto& [attribute, body] : inner) {
      for (const std::string& name : names) body.graph->inputs.push_back(find(body, name));
    }
    for (const std::string& name : names) node.inputs.push_back(find(scope, name));
    node.captured = names.size();
    for (auto& [attribute, graph] : graphs) node.graphs[attribute] = std::move(graph);
  }

  /// What the 4-bit types need: they share dtypes with Int8 and UInt8.
  static OnnxType followed_type(const Node& node, const Graph& graph) {
    const auto type_of = [&](std::size_t i) {
      return i < node.inputs.size() && node.inputs[i] != kNone
                 ? graph.values[static_cast<std::size_t>(node.inputs[i])].type
                 : OnnxType::Undefined;
    };
    const auto attribute = [&node](std::string_view name) {
      const auto found = node.attributes.find(name);
      const auto* value =
          found == node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
      return value == nullptr ? OnnxType::Undefined : static_cast<OnnxType>(*value);
    };
    if (node.op == "Cast") return attribute("to");
    if (node.op == "CastLike") return type_of(1);
    if (node.op == "QuantizeLinear") {
      if (type_of(2) != OnnxType::Undefined) return type_of(2);
      const OnnxType asked = attribute("output_dtype");
      return asked == OnnxType::Undefined ? OnnxType::UInt8 : asked;
    }
    if (node.row != nullptr && node.row->rule == CodeRule::Pass) return type_of(0);
    return OnnxType::Undefined;
  }

  static std::string first_output(const OnnxNode& node) {
    for (const std::string& name : node.outputs) {
      if (!name.empty()) return node.op_type + "_" + name;
    }
    return node.op_type;
  }

  std::string unique(const std::string& name) {
    std::string text = name;
    while (!names_.insert(text).second) text = fmt::format("{}_{}", name, ++counts_[name] + 1);
    return text;
  }

  /// What the call of the function leaves out is left out within, so that defaults hold.
  static void resolve_references(
      const std::map<std::string, OnnxReference, std::less<>>& references, const Frame& frame,
      OnnxAttributes& attributes) {
    for (const auto& [name, outer] : references) {
      const auto given = frame.attributes.find(outer.name);
      if (given != frame.attributes.end()) attributes[name] = given->second;
    }
  }

  void inline_function(const OnnxNode& file, const Node& call, const OnnxFunction& function,
                       Scope& scope, const Frame& frame) {
    int depth = 0;
    for (const Frame* outer = &frame; outer != nullptr; outer = outer->caller) {
      if (outer->function == &function || ++depth > kMaxFunctionDepth) {
        throw FileError(
            fmt::format("function {}.{}: calls itself", function.domain, function.name));
      }
    }
    if (file.inputs.size() > function.inputs.size() ||
        file.outputs.size() > function.outputs.size()) {
      throw FileError(
          fmt::format("{} '{}': {} inputs and {} outputs, but function {} has {} and {}", call.op,
                      call.name, file.inputs.size(), file.outputs.size(), function.name,
                      function.inputs.size(), function.outputs.size()));
    }
    Frame inside{.function = &function,
                 .caller = &frame,
                 .opsets = function.opsets.empty() ? frame.opsets : &function.opsets,
                 .prefix = call.name + "/",
                 .attributes = function.attributes};
    for (const auto& [name, value] : call.attributes) inside.attributes[name] = value;

    // The function's own names, in the graph of the call.
    Scope names{.graph = scope.graph};
    for (std::size_t i = 0; i < function.inputs.size(); ++i) {
      ValueId id = kNone;
      if (i < file.inputs.size() && !file.inputs[i].empty()) {
        id = find(scope, file.inputs[i]);
        if (id == kNone) {
          throw FileError(fmt::format("{} '{}': input '{}': no node, input or weight has this name",
                                      call.op, call.name, file.inputs[i]));
        }
      }
      define(names, function.inputs[i], id);
    }
    std::vector<OnnxNode> nodes = function.nodes;
    for (OnnxNode& node : nodes) drop_missing_inputs(node, names);
    for (const OnnxNode* node : in_order(nodes, names)) add_node(*node, names, inside, {});
    for (std::size_t i = 0; i < file.outputs.size(); ++i) {
      if (file.outputs[i].empty()) continue;
      const auto made = names.ids.find(function.outputs[i]);
      if (made == names.ids.end() || made->second == kNone) {
        throw FileError(fmt::format("function {}: output '{}': no node makes it", function.name,
                                    function.outputs[i]));
      }
      define(scope, file.outputs[i], made->second);
      if (frame.function == nullptr && !scope.graph->is_input(made->second)) {
        scope.graph->values[static_cast<std::size_t>(made->second)].name = file.outputs[i];
      }
    }
  }

  /// An input that the call leaves out is left out within.
  static void drop_missing_inputs(OnnxNode& node, const Scope& names) {
    for (std::string& name : node.inputs) {
      const auto found = names.ids.find(name);
      if (found != names.ids.end() && found->second == kNone) name.clear();
    }
  }

  const OnnxModel& model_;
  std::map<std::array<std::string, 3>, const OnnxFunction*> functions_;
  Unknown unknown_;
  std::set<std::string> names_;
  std::map<std::string, int> counts_;
  std::size_t nodes_ = 0;
};

}  // namespace

Graph import_graph(const OnnxModel& model) { return Importer(model).run(); }

}  // namespace quanta::graph
