// Where codes begin and end: a graph needs no stubs from its user.

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/passes/child_name.h"
#include "quanta/fusion/mapping.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/module_forms.h"
#include "quanta/nn/stubs.h"

namespace quanta::graph::detail {
namespace {

/// Works on codes and gives codes of the same parameters (or fixed ones), as in eager mode.
bool passes_codes(const Parts& parts, const Node& node, bool observe_means) {
  const nn::Module* module = parts.module_of(node);
  if (module != nullptr) {
    // One that could be int8 and has no QConfig is to stay in float.
    const bool has_int8_form = default_static_quant_module_mappings().find(*module) != nullptr;
    if (nn::module_forms().kind(*module).observe == nn::Observe::Nothing) return true;
    if (has_int8_form) return false;
  }
  if (node.row == nullptr || !node.domain.empty()) return false;
  if (observe_means && node.op == "GlobalAveragePool") return false;
  if (node.op == "Resize" || node.op == "Upsample") {
    return text_attribute(node, "mode", "nearest") == "nearest";
  }
  constexpr std::array<std::string_view, 4> kOnCodes{"AveragePool", "GlobalAveragePool", "Sigmoid",
                                                     "Tanh"};
  return node.row->rule == CodeRule::Pass ||
         std::find(kOnCodes.begin(), kOnCodes.end(), node.op) != kOnCodes.end();
}

template <typename... Types>
bool is_one_of(const nn::Module& module) {
  return ((typeid(module) == typeid(Types)) || ...);
}

/// Whether codes are no gain: a function of floats stays one, and shares (a network's result, or
/// attention in float) keep their small values.
bool is_better_in_float(const nn::Module& module, bool has_codes) {
  if (is_one_of<nn::Softmax, nn::LogSoftmax>(module)) return true;
  return !has_codes && is_one_of<nn::GELU, nn::SiLU, nn::Mish, nn::CELU, nn::SELU, nn::Softplus,
                                 nn::Softsign, nn::LogSigmoid>(module);
}

class StubInserter {
 public:
  StubInserter(Parts& parts, bool observe_means)
      : parts_(parts), graph_(parts.graph), observe_means_(observe_means) {}

  bool run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    has_codes_.assign(graph_.values.size(), false);
    for (Node& node : nodes) {
      const QConfig* qconfig = int8_config(node);
      bool gives_codes = qconfig != nullptr;
      if (qconfig != nullptr) {
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
          if (is_activation(node, i)) node.inputs[i] = as_codes(node.inputs[i], *qconfig);
        }
      } else if (!node.inputs.empty() && node.inputs[0] != kNone &&
                 has_codes_[index_of(node.inputs[0])] &&
                 passes_codes(parts_, node, observe_means_)) {
        gives_codes = true;
      } else {
        for (ValueId& id : node.inputs) id = as_floats(id);
      }
      for (std::size_t i = 0; gives_codes && i < node.outputs.size(); ++i) {
        // Indices, the second result of MaxPool, are no codes.
        if (node.outputs[i] != kNone && (i == 0 || node.op == "Split")) {
          has_codes_[index_of(node.outputs[i])] = true;
        }
      }
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& id : graph_.outputs) {
      const ValueId floats = as_floats(id);
      if (floats != id)
        std::swap(graph_.values[index_of(id)].name, graph_.values[index_of(floats)].name);
      id = floats;
    }
    return changed_;
  }

 private:
  /// The QConfig of a node whose module has an int8 form; null where it stays in float.
  const QConfig* int8_config(const Node& node) {
    const nn::Module* module = parts_.module_of(node);
    if (module == nullptr || module->qconfig() == nullptr || !module->qconfig()->activation) {
      return nullptr;
    }
    if (default_static_quant_module_mappings().find(*module) == nullptr) return nullptr;
    const nn::FloatKind& kind = nn::module_forms().kind(*module);
    if (kind.observe == nn::Observe::Nothing || kind.float_result) return nullptr;
    if (node.inputs.empty() || node.inputs[0] == kNone) return nullptr;
    if (is_better_in_float(*module, has_codes_[index_of(node.inputs[0])])) {
      parts_.module_of(node)->set_qconfig(std::nullopt);
      return nullptr;
    }
    // Integers (sizes that are calculated) stay integers.
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone || !is_activation(node, i)) continue;
      const OnnxType type = graph_.values[index_of(node.inputs[i])].type;
      if (type == OnnxType::Undefined || type == OnnxType::Float) continue;
      parts_.module_of(node)->set_qconfig(std::nullopt);  // or prepare would observe it
      return nullptr;
    }
    return module->qconfig();
  }

  /// Whether input i is data: of a layer the first, of additions and the like all.
  static bool is_activation(const Node& node, std::size_t i) {
    const CodeRule rule = node.row == nullptr ? CodeRule::Layer : node.row->rule;
    return i == 0 || rule == CodeRule::Binary || rule == CodeRule::Join;
  }

  ValueId as_codes(ValueId id, const QConfig& qconfig) {
    if (id == kNone || has_codes_[index_of(id)]) return id;
    const auto known = codes_.find(id);
    if (known != codes_.end()) return known->second;
    auto stub = nn::make_module<nn::QuantStub>(qconfig);
    const ValueId made = add_stub(id, "quant", "QuantStub", std::move(stub));
    has_codes_[index_of(made)] = true;
    codes_[id] = made;
    return made;
  }

  ValueId as_floats(ValueId id) {
    if (id == kNone || !has_codes_[index_of(id)]) return id;
    const auto known = floats_.find(id);
    if (known != floats_.end()) return known->second;
    auto stub = nn::make_module<nn::DeQuantStub>();
    const ValueId made = add_stub(id, "dequant", "DeQuantStub", std::move(stub));
    floats_[id] = made;
    return made;
  }

  ValueId add_stub(ValueId from, const char* suffix, const char* op,
                   std::shared_ptr<nn::Module> stub) {
    const std::string base = in_module_tree(graph_.values[index_of(from)].name);
    Node node{.name = base + "_" + suffix, .op = op, .domain = "quanta", .opset = 1};
    node.row = op_table().find("quanta", op, 1);
    node.module = parts_.unique_child_name(node.name);
    Value value{.name = graph_.unique_value_name(node.name), .type = OnnxType::Float};
    const ValueId made = graph_.add_value(std::move(value));
    has_codes_.push_back(false);
    node.inputs = {from};
    node.outputs = {made};
    stub->eval();
    parts_.children.push_back({node.module, std::move(stub)});
    graph_.nodes.push_back(std::move(node));
    changed_ = true;
    return made;
  }

  Parts& parts_;
  Graph& graph_;
  bool observe_means_;
  std::vector<bool> has_codes_;
  std::map<ValueId, ValueId> codes_;
  std::map<ValueId, ValueId> floats_;
  bool changed_ = false;
};

}  // namespace

bool insert_stubs(Parts& parts, bool observe_means) {
  return StubInserter(parts, observe_means).run();
}

}  // namespace quanta::graph::detail
