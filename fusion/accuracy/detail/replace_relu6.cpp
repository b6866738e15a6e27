#include "quanta/fusion/accuracy/detail/replace_relu6.h"

#include <memory>
#include <typeinfo>
#include <utility>

#include "quanta/fusion/find_fusion_groups.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/nn/activation.h"

namespace quanta::accuracy {
namespace {

bool is_relu6(const nn::Module* module) {
  return module != nullptr && typeid(*module) == typeid(nn::ReLU6);
}

std::shared_ptr<nn::Module> relu_in_place_of(const nn::Module& module) {
  std::shared_ptr<nn::Module> relu = nn::make_module<nn::ReLU>();
  relu->train(module.is_training());
  relu->take_pre_hooks_from(module);
  relu->take_forward_hooks_from(module);
  relu->take_qconfig_from(module);
  return relu;
}

bool replace_in_graph(graph::Model& model, const std::set<std::string>& paths) {
  graph::detail::Parts parts = graph::detail::take_apart(model);
  bool is_changed = false;
  for (graph::Node& node : parts.graph.nodes) {
    if (!paths.contains(node.module) || !is_relu6(parts.module_of(node))) continue;
    node.op = "Relu";
    node.row = graph::op_table().find("", "Relu", node.opset);
    node.inputs.resize(1);
    node.attributes.clear();
    for (nn::Module::NamedChild& child : parts.children) {
      if (child.name == node.module) child.module = relu_in_place_of(*child.module);
    }
    is_changed = true;
  }
  if (is_changed) model = graph::detail::put_together(std::move(parts));
  return is_changed;
}

}  // namespace

bool replace_relu6(nn::Module& model, const std::set<std::string>& paths,
                   std::span<const Tensor> example) {
  if (auto* graph = dynamic_cast<graph::Model*>(&model)) return replace_in_graph(*graph, paths);
  std::set<std::string> replaced;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    const std::shared_ptr<nn::Module> module = model.get_submodule(path);
    if (!is_relu6(module.get())) continue;
    const std::size_t dot = path.rfind('.');
    nn::Module& parent =
        dot == std::string::npos ? model : *model.get_submodule(path.substr(0, dot));
    parent.replace_child(path.substr(dot == std::string::npos ? 0 : dot + 1),
                         relu_in_place_of(*module));
    replaced.insert(path);
  }
  if (replaced.empty()) return false;
  FusionGroups groups;
  for (FusionGroups::value_type& group :
       quanta::detail::find_fusion_groups_in(model, example, nn::FuseFor::Inference)) {
    if (group.size() == 2 && replaced.contains(group[1])) groups.push_back(std::move(group));
  }
  fuse_modules(model, groups);
  return true;
}

}  // namespace quanta::accuracy
