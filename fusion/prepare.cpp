#include "quanta/fusion/prepare.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/qat/module.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;

bool is_transposed_convolution(const Module& module) {
  return dynamic_cast<const nn::ConvTranspose1d*>(&module) != nullptr ||
         dynamic_cast<const nn::ConvTranspose2d*>(&module) != nullptr ||
         dynamic_cast<const nn::ConvTranspose3d*>(&module) != nullptr;
}

// The QConfig that each module below gets, found before the first one is set.
using Assignments = std::vector<std::pair<Module*, std::optional<QConfig>>>;

void propagate(Module& module, const QConfigMapping& mapping, const std::string& path,
               const std::optional<QConfig>& inherited, std::set<const Module*>& seen,
               Assignments& assignments) {
  if (!seen.insert(&module).second) return;
  std::optional<QConfig> effective = inherited;
  if (module.has_qconfig_attribute()) {
    effective = module.qconfig() == nullptr ? std::nullopt : std::optional(*module.qconfig());
  } else if (const auto found = mapping.find(module, path)) {
    effective = *found;
  }
  if (effective && effective->weight && is_transposed_convolution(module)) {
    const std::shared_ptr<Observer> weight = effective->weight();
    QUANTA_CHECK(!is_per_channel(weight->qscheme()),
                 "prepare: qconfig: expected a per-tensor weight observer for {} '{}' (per-channel "
                 "weights are not supported for transposed convolutions), got {}",
                 module.type_name(), path, effective->weight.name);
  }
  for (const Module::NamedChild& child : module.named_children()) {
    propagate(*child.module, mapping, path.empty() ? child.name : path + "." + child.name,
              effective, seen, assignments);
  }
  assignments.emplace_back(&module, std::move(effective));
}

Assignments planned_qconfigs(Module& model, const QConfigMapping& mapping) {
  std::set<const Module*> seen;
  Assignments assignments;
  propagate(model, mapping, "", mapping.global(), seen, assignments);
  return assignments;
}

void assign(Assignments assignments) {
  for (auto& [module, qconfig] : assignments) module->set_qconfig(std::move(qconfig));
}

void insert_observer(Module& module, Module::Observation observation) {
  const QConfig* qconfig = module.qconfig();
  if (qconfig == nullptr || !qconfig->activation) return;
  if (observation == Module::Observation::Output && activation_is_memoryless(*qconfig)) {
    observation = Module::Observation::Input;
  }
  module.set_activation_post_process(qconfig->activation(), observation);
}

void add_observers(Module& module, const ModuleMapping& mapping, std::set<const Module*>& seen) {
  if (!seen.insert(&module).second) return;
  const auto children = module.named_children();
  for (const Module::NamedChild& child : children) {
    Module& occupant = *child.module;
    if (dynamic_cast<const nn::Dropout*>(&occupant) != nullptr) continue;
    if (dynamic_cast<const nn::FloatFunctional*>(&occupant) != nullptr) {
      if (seen.insert(&occupant).second) {
        insert_observer(occupant, Module::Observation::Explicit);
      }
      continue;
    }
    if (dynamic_cast<const nn::intrinsic::FusedModule*>(&occupant) != nullptr ||
        dynamic_cast<const nn::qat::QatModule*>(&occupant) != nullptr) {
      if (seen.insert(&occupant).second) insert_observer(occupant, Module::Observation::Output);
      continue;
    }
    add_observers(occupant, mapping, seen);
  }
  const bool observed_leaf = children.empty() && mapping.find(module) != nullptr &&
                             dynamic_cast<const nn::DeQuantStub*>(&module) == nullptr &&
                             dynamic_cast<const nn::Dropout*>(&module) == nullptr &&
                             dynamic_cast<const nn::FloatFunctional*>(&module) == nullptr;
  if (observed_leaf) insert_observer(module, Module::Observation::Output);
}

// An observed custom module that is to stand in the place of the float one.
struct CustomReplacement {
  Module* parent;
  std::string name;
  std::shared_ptr<Module> observed;
  OutputObserver output;
};

// Makes the observed forms of the custom modules below without putting them in place.
class CustomModulePlan {
 public:
  CustomModulePlan(const CustomModuleMapping& custom, const Assignments& assignments)
      : custom_(custom) {
    for (const auto& [module, qconfig] : assignments) {
      if (qconfig) qconfigs_[module] = &*qconfig;
    }
  }

  void visit(Module& parent, const std::string& prefix) {
    if (!seen_.insert(&parent).second) return;
    for (const Module::NamedChild& child : parent.named_children()) {
      const CustomModuleMapping::Observed* form = custom_.find_observed(*child.module);
      const auto qconfig = qconfigs_.find(child.module.get());
      if (form == nullptr || qconfig == qconfigs_.end()) {
        visit(*child.module, prefix + child.name + ".");
        continue;
      }
      std::shared_ptr<Module>& observed = made_[child.module.get()];
      if (observed == nullptr) {
        observed = make(*child.module, *form, *qconfig->second, prefix + child.name);
      }
      replacements_.push_back({&parent, child.name, observed, form->output});
    }
  }

  const std::vector<CustomReplacement>& replacements() const { return replacements_; }

 private:
  static std::shared_ptr<Module> make(const Module& module,
                                      const CustomModuleMapping::Observed& form,
                                      const QConfig& qconfig, const std::string& path) {
    const std::shared_ptr<Module> source = module.clone();
    source->set_qconfig(qconfig);
    std::shared_ptr<Module> observed;
    try {
      observed = form.from_float(*source);
    } catch (const UnsupportedError& error) {
      throw UnsupportedError(fmt::format("prepare: model: '{}': {}", path, error.what()));
    } catch (const Error& error) {
      throw ArgumentError(fmt::format("prepare: model: '{}': {}", path, error.what()));
    }
    QUANTA_CHECK(observed != nullptr && observed != source,
                 "prepare: custom: expected a from_float that returns a new module for {} '{}', "
                 "got {}",
                 module.type_name(), path, observed == nullptr ? "null" : "the same one");
    propagate_qconfig_(*observed, QConfigMapping(qconfig));
    observed->take_pre_hooks_from(module);
    observed->take_forward_hooks_from(module);
    observed->train(module.is_training());
    return observed;
  }

  const CustomModuleMapping& custom_;
  std::map<const Module*, const QConfig*> qconfigs_;
  std::set<const Module*> seen_;
  std::map<const Module*, std::shared_ptr<Module>> made_;  // so that shared modules stay shared
  std::vector<CustomReplacement> replacements_;
};

}  // namespace

void propagate_qconfig_(Module& model, const QConfigMapping& mapping) {
  assign(planned_qconfigs(model, mapping));
}

void add_observer_(Module& model, const ModuleMapping& mapping) {
  std::set<const Module*> seen;
  add_observers(model, mapping, seen);
}

void prepare_(Module& model, const QConfigMapping& qconfigs, const ModuleMapping& mapping,
              const CustomModuleMapping& custom) {
  Assignments assignments = planned_qconfigs(model, qconfigs);
  QUANTA_CHECK(
      std::any_of(assignments.begin(), assignments.end(),
                  [](const auto& entry) { return entry.second.has_value(); }),
      "prepare: qconfigs: expected a QConfig for some module (pass get_default_qconfig()), "
      "got none");
  CustomModulePlan plan(custom, assignments);
  plan.visit(model, "");
  assign(std::move(assignments));
  for (const CustomReplacement& replacement : plan.replacements()) {
    replacement.parent->replace_child(replacement.name, replacement.observed);
  }
  add_observer_(model, mapping);
  for (const CustomReplacement& replacement : plan.replacements()) {
    if (replacement.output == OutputObserver::Attach) {
      insert_observer(*replacement.observed, Module::Observation::Output);
    }
  }
}

std::map<std::string, std::shared_ptr<Observer>> get_observer_dict(const Module& model) {
  std::map<std::string, std::shared_ptr<Observer>> result;
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (entry.module->activation_post_process() != nullptr) {
      result[entry.path] = entry.module->activation_post_process();
    }
  }
  return result;
}

}  // namespace quanta
