// prepare_qat, and the switches of what it puts into a model.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/detail/float_islands.h"
#include "quanta/fusion/detail/observe.h"
#include "quanta/fusion/detail/qconfig_scope.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;

// Makes the qat forms of the modules below without putting them in place.
class QatPlan {
 public:
  /// Custom modules with an observed form are left alone.
  QatPlan(const ModuleMapping& mapping, const CustomModuleMapping& custom)
      : mapping_(mapping), custom_(custom) {}

  void visit(Module& parent, const std::string& prefix) {
    for (const Module::NamedChild& child : parent.named_children()) {
      const auto [made, first_visit] = made_.try_emplace(child.module.get(), nullptr);
      if (first_visit) made->second = make_replacement(child.module, prefix + child.name);
      if (made->second != nullptr) replacements_.push_back({&parent, child.name, made->second});
    }
  }

  void put_in_place() const {
    for (const Replacement& replacement : replacements_) {
      replacement.parent->replace_child(replacement.name, replacement.module);
    }
  }

 private:
  struct Replacement {
    Module* parent;
    std::string name;
    ModulePtr module;
  };

  // Null: the module stays. Fused modules are one, whether they have a qat form or not.
  ModulePtr make_replacement(const ModulePtr& module, const std::string& path) {
    if (module->qconfig() != nullptr && custom_.find_observed(*module) != nullptr) return nullptr;
    if (module->qconfig() == nullptr || mapping_.find(*module) == nullptr) {
      if (!is_fused(*module)) visit(*module, path + ".");
      return nullptr;
    }
    try {
      return swap_module(module, mapping_);
    } catch (const Error& error) {
      throw ArgumentError(fmt::format("prepare_qat: model: '{}': {}", path, error.what()));
    }
  }

  const ModuleMapping& mapping_;
  const CustomModuleMapping& custom_;
  std::map<const Module*, ModulePtr> made_;  // so that shared modules stay shared
  std::vector<Replacement> replacements_;
};

// Layers that are trained with observers instead of fake quantizers would learn nothing of
// quantization.
void require_fake_quantizers(const Module& model, const ModuleMapping& mapping) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    const QConfig* qconfig = entry.module->qconfig();
    if (qconfig == nullptr || !qconfig->weight || mapping.find(*entry.module) == nullptr) continue;
    const std::shared_ptr<Observer> weight = qconfig->weight();
    QUANTA_CHECK(dynamic_cast<const FakeQuantizeBase*>(weight.get()) != nullptr,
                 "prepare_qat: qconfigs: expected fake quantizers (get_default_qat_qconfig(), "
                 "get_default_qat_qconfig_mapping()), got {} for the weight of '{}'",
                 qconfig->weight.name, entry.path);
  }
}

// Whether some module has a QConfig. Observers are made once, so that a factory that throws does so
// before the model has changed.
bool has_usable_qconfig(const Module& model) {
  bool any = false;
  for (const Module::NamedModule& entry : model.named_modules()) {
    const QConfig* qconfig = entry.module->qconfig();
    any = any || qconfig != nullptr;
    if (qconfig != nullptr && qconfig->activation) static_cast<void>(qconfig->activation());
  }
  return any;
}

template <typename Change>
void for_fake_quantizers(Module& model, Change&& change) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    for (const Module::NamedObserver& named : entry.module->named_observers()) {
      if (auto* fake = dynamic_cast<FakeQuantizeBase*>(named.observer.get())) change(*fake);
    }
  }
}

}  // namespace

void prepare_qat_(Module& model, const QConfigMapping& qconfigs, const ModuleMapping& mapping,
                  const CustomModuleMapping& custom) {
  QUANTA_CHECK(model.is_training(),
               "prepare_qat: model: expected train mode (call train()), got eval mode");
  require_unprepared(model, "prepare_qat");
  QConfigScope scope(model);
  propagate_qconfig_(model, qconfigs);
  QUANTA_CHECK(has_usable_qconfig(model),
               "prepare_qat: qconfigs: expected a QConfig for some module (pass "
               "get_default_qat_qconfig()), got none");
  QUANTA_CHECK(!model.named_children().empty() || mapping.find(model) == nullptr,
               "prepare_qat: model: expected a network with layers below it, got a single {}: the "
               "root itself is not replaced; wrap it in nn::QuantWrapper or nn::Sequential first",
               model.type_name());
  require_fake_quantizers(model, mapping);
  QatPlan plan(mapping, custom);
  plan.visit(model, "");
  CustomModulePlan custom_plan(custom);
  custom_plan.visit(model, "");
  for (Module* observed : custom_plan.observed()) {
    QatPlan parts(mapping, custom);
    parts.visit(*observed, "");
    parts.put_in_place();
  }
  plan.put_in_place();
  custom_plan.put_in_place();
  scope.keep();
  add_observer_(model, default_static_quant_module_mappings());
  custom_plan.observe_outputs();
}

void detail::watch_calls(Module& prepared, const CustomModuleMapping& custom) {
  watch_forward_calls(prepared, default_static_quant_module_mappings(), custom);
}

void enable_observer(Module& model) {
  for_fake_quantizers(model, [](FakeQuantizeBase& fake) { fake.enable_observer(); });
}
void disable_observer(Module& model) {
  for_fake_quantizers(model, [](FakeQuantizeBase& fake) { fake.disable_observer(); });
}
void enable_fake_quant(Module& model) {
  for_fake_quantizers(model, [](FakeQuantizeBase& fake) { fake.enable_fake_quant(); });
}
void disable_fake_quant(Module& model) {
  for_fake_quantizers(model, [](FakeQuantizeBase& fake) { fake.disable_fake_quant(); });
}

void enable_param_learning(Module& model) {
  std::vector<LearnableFakeQuantize*> found;
  for (const Module::NamedModule& entry : model.named_modules()) {
    for (const auto& [name, observer] : entry.module->named_observers()) {
      auto* learnable = dynamic_cast<LearnableFakeQuantize*>(observer.get());
      if (learnable == nullptr) continue;
      QUANTA_CHECK(learnable->has_data(),
                   "enable_param_learning: model: expected one that was called in training before, "
                   "got no data at '{}' ({})",
                   entry.path, name);
      found.push_back(learnable);
    }
  }
  QUANTA_CHECK(!found.empty(),
               "enable_param_learning: model: expected LearnableFakeQuantize below (lsq_qconfig), "
               "got none");
  for (LearnableFakeQuantize* learnable : found) learnable->enable_param_learning();
}

}  // namespace quanta
