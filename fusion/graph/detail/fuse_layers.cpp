#include <algorithm>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/module_forms.h"
#include "quanta/nn/norm.h"
#include "quanta/ops/arithmetic.h"

namespace quanta::graph::detail {
namespace {

using ModulePtr = std::shared_ptr<nn::Module>;

std::type_index type_of(const nn::Module& module) { return typeid(module); }

bool is_batch_norm(const nn::Module& module) {
  const std::type_index type = type_of(module);
  return type == typeid(nn::BatchNorm1d) || type == typeid(nn::BatchNorm2d) ||
         type == typeid(nn::BatchNorm3d);
}

/// The node that alone takes the only result of `node`; kNone where there is none.
NodeId only_user(const Graph& graph, const Uses& uses, NodeId node) {
  const Node& from = graph.nodes[index_of(node)];
  if (from.outputs.empty() || from.outputs[0] == kNone || !uses.used_once(from.outputs[0])) {
    return kNone;
  }
  const NodeId user = uses.users(from.outputs[0]).front();
  const Node& to = graph.nodes[index_of(user)];
  return !to.inputs.empty() && to.inputs[0] == from.outputs[0] ? user : kNone;
}

const Fuser* find_rule(const std::vector<std::type_index>& types) {
  const auto& rules = nn::module_forms().fusions();
  const auto found = std::find_if(rules.rbegin(), rules.rend(), [&](const nn::FusionRule& rule) {
    return rule.use == nn::FuseFor::Inference && rule.sequence == types;
  });
  return found == rules.rend() ? nullptr : &found->fuse;
}

ModulePtr shared_child(const Parts& parts, const Node& node) {
  for (const auto& child : parts.children) {
    if (child.name == node.module) return child.module;
  }
  return nullptr;
}

void set_child(Parts& parts, const std::string& name, ModulePtr module) {
  for (auto& child : parts.children) {
    if (child.name == name) child.module = std::move(module);
  }
}

/// The last node's result becomes the first's; the nodes between go.
void join(Graph& graph, const std::vector<NodeId>& chain) {
  graph.nodes[index_of(chain.front())].outputs = {graph.nodes[index_of(chain.back())].outputs[0]};
  for (std::size_t i = 1; i < chain.size(); ++i) graph.nodes[index_of(chain[i])].outputs.clear();
  std::erase_if(graph.nodes, [](const Node& node) { return node.outputs.empty(); });
}

/// Fuses the first chain that a rule fits, the longest first. False when there is none.
bool fuse_one(Parts& parts, bool only_batch_norm) {
  const Uses uses(parts.graph);
  for (std::size_t n = 0; n < parts.graph.nodes.size(); ++n) {
    std::vector<NodeId> chain{static_cast<NodeId>(n)};
    std::vector<ModulePtr> modules;
    while (chain.size() <= 3) {
      const ModulePtr module = shared_child(parts, parts.graph.nodes[index_of(chain.back())]);
      if (module == nullptr) {
        chain.pop_back();
        break;
      }
      modules.push_back(module);
      const NodeId next = only_user(parts.graph, uses, chain.back());
      if (next == kNone || chain.size() == 3) break;
      chain.push_back(next);
    }
    for (; chain.size() >= 2; chain.pop_back(), modules.pop_back()) {
      if (only_batch_norm && (chain.size() != 2 || !is_batch_norm(*modules[1]))) continue;
      std::vector<std::type_index> types;
      for (const ModulePtr& module : modules) types.push_back(type_of(*module));
      const Fuser* rule = find_rule(types);
      if (rule == nullptr) continue;
      ModulePtr fused = (*rule)(modules);
      fused->take_qconfig_from(*modules.front());
      set_child(parts, parts.graph.nodes[n].module, std::move(fused));
      join(parts.graph, chain);
      return true;
    }
  }
  return false;
}

/// Goes into the linear layer before it: a Mul or Add with a constant number, or one for each feature.
bool fold_scale(Parts& parts, const Node& layer_node, const Node& scale_node) {
  const bool is_mul = scale_node.op == "Mul";
  if ((!is_mul && scale_node.op != "Add") || !scale_node.domain.empty() ||
      scale_node.inputs.size() != 2) {
    return false;
  }
  nn::Module* module = parts.module_of(layer_node);
  if (module == nullptr || type_of(*module) != typeid(nn::Linear)) return false;
  auto& layer = static_cast<nn::Linear&>(*module);
  const ValueId result = layer_node.outputs[0];
  const ValueId other = scale_node.inputs[scale_node.inputs[0] == result ? 1 : 0];
  if (!parts.graph.is_constant(other)) return false;
  const Tensor& constant = parts.graph.values[index_of(other)].constant;
  const std::int64_t features = layer.weight.size(0);
  if (constant.dtype() != DType::Float32 || constant.dim() > 1) return false;
  if (constant.numel() != 1 && constant.numel() != features) return false;
  const Tensor numbers = constant.reshape({-1}).expand({features}).contiguous();
  if (is_mul) {
    layer.weight = mul(layer.weight, numbers.reshape({features, 1}));
    if (layer.bias.defined()) layer.bias = mul(layer.bias, numbers);
  } else {
    layer.bias = layer.bias.defined() ? add(layer.bias, numbers) : numbers;
  }
  return true;
}

}  // namespace

bool fuse_layers(Parts& parts, bool only_batch_norm) {
  bool changed = false;
  while (fuse_one(parts, only_batch_norm)) changed = true;
  return changed;
}

bool fold_linear_scales(Parts& parts) {
  bool changed = false;
  for (std::size_t n = 0; n < parts.graph.nodes.size(); ++n) {
    for (;;) {
      const Node& layer = parts.graph.nodes[n];
      if (layer.outputs.size() != 1 || layer.outputs[0] == kNone) break;
      const Uses uses(parts.graph);
      if (!uses.used_once(layer.outputs[0])) break;
      const NodeId user = uses.users(layer.outputs[0]).front();
      if (!fold_scale(parts, layer, parts.graph.nodes[index_of(user)])) break;
      join(parts.graph, {static_cast<NodeId>(n), user});
      changed = true;
    }
  }
  if (changed) erase_dead(parts.graph);
  return changed;
}

bool fuse_add_relu(Parts& parts) {
  bool changed = false;
  for (std::size_t n = 0; n < parts.graph.nodes.size(); ++n) {
    Node& add = parts.graph.nodes[n];
    if (add.op != "Add" || add.module.empty()) continue;
    const NodeId user = only_user(parts.graph, Uses(parts.graph), static_cast<NodeId>(n));
    if (user == kNone || parts.graph.nodes[index_of(user)].op != "Relu") continue;
    add.op = "AddRelu";
    add.domain = "quanta";
    add.row = op_table().find("quanta", "AddRelu", 1);
    join(parts.graph, {static_cast<NodeId>(n), user});
    changed = true;
  }
  return changed;
}

}  // namespace quanta::graph::detail
