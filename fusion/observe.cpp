#include "quanta/fusion/observe.h"

#include <algorithm>
#include <typeindex>

#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/qat/module.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;

// torch's DEFAULT_MODULE_TO_ACT_POST_PROCESS: results whose range is known, while they are trained.
// Empty for other modules.
ObserverFactory fixed_fake_quant(const Module& module) {
  if (!module.is_training() || module.qconfig() == nullptr) return {};
  const std::type_index type = typeid(module);
  if (type == typeid(nn::Tanh)) return default_fixed_qparams_range_neg1to1_fake_quant();
  if (type == typeid(nn::Sigmoid) || type == typeid(nn::Hardsigmoid) ||
      type == typeid(nn::Softmax)) {
    return default_fixed_qparams_range_0to1_fake_quant();
  }
  return {};
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
    if (const ObserverFactory fixed = fixed_fake_quant(occupant)) {
      occupant.set_activation_post_process(fixed());
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

// The observed form of a custom module; its parts inherit the QConfig.
std::shared_ptr<Module> make_observed(const Module& module,
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

}  // namespace

void add_observer_(Module& model, const ModuleMapping& mapping) {
  std::set<const Module*> seen;
  add_observers(model, mapping, seen);
}

void CustomModulePlan::visit(Module& parent, const std::string& prefix) {
  if (!seen_.insert(&parent).second) return;
  for (const Module::NamedChild& child : parent.named_children()) {
    const CustomModuleMapping::Observed* form = custom_.find_observed(*child.module);
    const QConfig* qconfig = child.module->qconfig();
    if (form == nullptr || qconfig == nullptr) {
      visit(*child.module, prefix + child.name + ".");
      continue;
    }
    std::shared_ptr<Module>& observed = made_[child.module.get()];
    if (observed == nullptr) {
      observed = make_observed(*child.module, *form, *qconfig, prefix + child.name);
    }
    replacements_.push_back({&parent, child.name, observed, form->output});
  }
}

std::vector<Module*> CustomModulePlan::observed() const {
  std::vector<Module*> result;
  for (const auto& [source, observed] : made_) result.push_back(observed.get());
  return result;
}

void CustomModulePlan::put_in_place() const {
  for (const Replacement& replacement : replacements_) {
    replacement.parent->replace_child(replacement.name, replacement.observed);
  }
}

void CustomModulePlan::observe_outputs() const {
  for (const Replacement& replacement : replacements_) {
    if (replacement.output == OutputObserver::Attach) {
      insert_observer(*replacement.observed, Module::Observation::Output);
    }
  }
}

}  // namespace quanta
