#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/child_name.h"
#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {

std::string in_module_tree(std::string name) {
  while (!name.empty() && name.front() == '/') name.erase(name.begin());
  std::ranges::replace(name, '.', '_');
  return name;
}

std::string child_name(const Node& node, std::span<const nn::Module::NamedChild> children,
                       std::span<const nn::Module::NamedChild> others) {
  std::string base = in_module_tree(node.name);
  if (base.empty()) base = node.op;
  std::string name = base;
  const auto is_it = [&name](const auto& child) { return child.name == name; };
  for (int i = 2; std::ranges::any_of(children, is_it) || std::ranges::any_of(others, is_it); ++i) {
    name = base + "_" + std::to_string(i);
  }
  return name;
}

std::vector<nn::Module::NamedChild> make_modules(Graph& graph,
                                                 const std::vector<nn::Module::NamedChild>& taken) {
  std::vector<nn::Module::NamedChild> children;
  for (Node& node : graph.nodes) {
    if (node.row == nullptr || node.row->make_module == nullptr || node.operation != nullptr ||
        !node.module.empty()) {
      continue;
    }
    std::vector<Tensor> constants;
    std::vector<OnnxType> types;
    for (const ValueId id : node.inputs) {
      constants.push_back(id == kNone ? Tensor() : graph.values[index_of(id)].constant);
      types.push_back(id == kNone ? OnnxType::Undefined : graph.values[index_of(id)].type);
    }
    std::shared_ptr<nn::Module> module = node.row->make_module(NodeCall(node, constants, types));
    if (module == nullptr) continue;
    node.module = child_name(node, children, taken);
    children.push_back({node.module, std::move(module)});
  }
  return children;
}

}  // namespace quanta::graph
