#include "quanta/fusion/graph/detail/parts.h"

#include <algorithm>
#include <set>
#include <utility>

namespace quanta::graph::detail {

std::string Parts::unique_child_name(const std::string& base) const {
  std::string name = base;
  for (int i = 2; find(name) != nullptr; ++i) name = base + "_" + std::to_string(i);
  return name;
}

Parts take_apart(const Model& model) {
  const Model copy = nn::deep_copy(model);
  return {copy.graph(), copy.named_children(), std::make_shared<const OnnxModel>(copy.file())};
}

Model put_together(Parts parts) {
  std::set<std::string> called;
  for (const Node& node : parts.graph.nodes) called.insert(node.module);
  std::erase_if(parts.children, [&](const auto& child) { return !called.contains(child.name); });
  Model model(std::move(parts.graph), std::move(parts.children));
  model.set_file(std::move(parts.file));
  return model;
}

}  // namespace quanta::graph::detail
