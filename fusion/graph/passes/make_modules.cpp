#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

/// A name for the tree: a dot would be a step down in it.
std::string child_name(const Node& node) {
  std::string name = node.name;
  while (!name.empty() && name.front() == '/') name.erase(name.begin());
  std::replace(name.begin(), name.end(), '.', '_');
  return name.empty() ? node.op : name;
}

}  // namespace

std::vector<nn::Module::NamedChild> make_modules(Graph& graph,
                                                 const std::vector<nn::Module::NamedChild>& taken) {
  std::vector<nn::Module::NamedChild> children;
  const auto is_taken = [&](const std::string& name) {
    const auto is_it = [&name](const auto& child) { return child.name == name; };
    return std::any_of(children.begin(), children.end(), is_it) ||
           std::any_of(taken.begin(), taken.end(), is_it);
  };
  for (Node& node : graph.nodes) {
    if (node.row == nullptr || node.row->make_module == nullptr || node.operation != nullptr ||
        !node.module.empty()) {
      continue;
    }
    std::vector<Tensor> constants;
    std::vector<OnnxType> types;
    for (const ValueId id : node.inputs) {
      constants.push_back(id == kNone ? Tensor()
                                      : graph.values[static_cast<std::size_t>(id)].constant);
      types.push_back(id == kNone ? OnnxType::Undefined
                                  : graph.values[static_cast<std::size_t>(id)].type);
    }
    std::shared_ptr<nn::Module> module = node.row->make_module(NodeCall(node, constants, types));
    if (module == nullptr) continue;
    const std::string base = child_name(node);
    node.module = base;
    for (int i = 2; is_taken(node.module); ++i) node.module = base + "_" + std::to_string(i);
    children.push_back({node.module, std::move(module)});
  }
  return children;
}

}  // namespace quanta::graph
