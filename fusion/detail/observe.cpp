#include "quanta/fusion/detail/observe.h"

#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/module_forms.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;

void add_observers(Module& module, const ModuleMapping& mapping, std::set<const Module*>& seen) {
  if (!seen.insert(&module).second) return;
  const nn::ModuleForms& forms = nn::module_forms();
  const auto children = module.named_children();
  for (const Module::NamedChild& child : children) {
    Module& occupant = *child.module;
    const nn::FloatKind& kind = forms.kind(occupant);
    if (is_whole(occupant) || kind.observe == nn::Observe::Calls) {
      if (seen.insert(&occupant).second) insert_observer(occupant);
      continue;
    }
    // torch's DEFAULT_MODULE_TO_ACT_POST_PROCESS: results whose range is known, while they are
    // trained.
    if (kind.fixed_fake_quantizer && occupant.is_training() && occupant.qconfig() != nullptr) {
      occupant.set_activation_post_process(kind.fixed_fake_quantizer());
      continue;
    }
    add_observers(occupant, mapping, seen);
  }
  const bool observed_leaf = children.empty() && mapping.find(module) != nullptr &&
                             forms.kind(module).observe == nn::Observe::Result;
  if (observed_leaf) insert_observer(module);
}

}  // namespace

void require_unprepared(const Module& model, std::string_view op) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    const Module& module = *entry.module;
    QUANTA_CHECK(module.named_observers().empty() && module.forward_calls() == nullptr,
                 "{}: model: expected a float network, got one that is prepared already: {} '{}' "
                 "has an observer (start from the float network again)",
                 op, module.type_name(), entry.path);
    QUANTA_CHECK(
        nn::module_forms().form(module) != nn::Form::Quantized,
        "{}: model: expected a float network, got one that is converted already: '{}' is a "
        "quantized {} (start from the float network again)",
        op, entry.path, module.type_name());
  }
}

void insert_observer(Module& module) {
  const QConfig* qconfig = module.qconfig();
  if (qconfig == nullptr || !qconfig->activation) return;
  Module::Observation observation = Module::Observation::Output;
  if (nn::module_forms().kind(module).observe == nn::Observe::Calls) {
    observation = Module::Observation::Explicit;
  } else if (activation_is_memoryless(*qconfig)) {
    observation = Module::Observation::Input;
  }
  module.set_activation_post_process(qconfig->activation(), observation);
}

std::shared_ptr<Module> make_observed(const Module& module, const FromFloat& from_float,
                                      const QConfig& qconfig, const std::string& path) {
  const std::shared_ptr<Module> source = module.clone();
  source->set_qconfig(qconfig);
  std::shared_ptr<Module> observed;
  try {
    observed = from_float(*source);
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
      observed = make_observed(*child.module, form->from_float, *qconfig, prefix + child.name);
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
      insert_observer(*replacement.observed);
    }
  }
}

}  // namespace quanta
