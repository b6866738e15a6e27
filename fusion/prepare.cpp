#include "quanta/fusion/prepare.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/qat/module.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/fake_quantize.h"
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

namespace {

// QConfigs as they were, put back unless all went well.
class QConfigRollback {
 public:
  explicit QConfigRollback(const Assignments& assignments) {
    for (const auto& [module, qconfig] : assignments) {
      before_.push_back(
          {module, module->has_qconfig_attribute(),
           module->qconfig() == nullptr ? std::nullopt : std::optional(*module->qconfig())});
    }
  }
  ~QConfigRollback() {
    if (done_) return;
    for (const Before& entry : before_) {
      entry.module->clear_qconfig();
      if (entry.assigned) entry.module->set_qconfig(entry.qconfig);
    }
  }
  QConfigRollback(const QConfigRollback&) = delete;
  QConfigRollback& operator=(const QConfigRollback&) = delete;
  void keep_new() noexcept { done_ = true; }

 private:
  struct Before {
    Module* module;
    bool assigned;
    std::optional<QConfig> qconfig;
  };
  std::vector<Before> before_;
  bool done_ = false;
};

struct QatReplacement {
  Module* parent;
  std::string name;
  std::shared_ptr<Module> module;
};

// The qat forms of the modules below, not yet in their places; fused modules as one.
void plan_qat(Module& parent, const std::string& prefix, const ModuleMapping& mapping,
              std::map<const Module*, std::shared_ptr<Module>>& made,
              std::vector<QatReplacement>& replacements) {
  for (const Module::NamedChild& child : parent.named_children()) {
    const FromFloat* from_float = mapping.find(*child.module);
    if (child.module->qconfig() == nullptr || from_float == nullptr) {
      if (made.emplace(child.module.get(), nullptr).second) {
        plan_qat(*child.module, prefix + child.name + ".", mapping, made, replacements);
      }
      continue;
    }
    std::shared_ptr<Module>& qat = made[child.module.get()];
    if (qat == nullptr) {
      try {
        qat = swap_module(child.module, mapping);
      } catch (const Error& error) {
        throw ArgumentError(
            fmt::format("prepare_qat: model: '{}': {}", prefix + child.name, error.what()));
      }
    }
    replacements.push_back({&parent, child.name, qat});
  }
}

}  // namespace

void prepare_qat_(Module& model, const QConfigMapping& qconfigs, const ModuleMapping& mapping) {
  QUANTA_CHECK(model.is_training(),
               "prepare_qat: model: expected train mode (call train()), got eval mode");
  Assignments assignments = planned_qconfigs(model, qconfigs);
  QUANTA_CHECK(std::any_of(assignments.begin(), assignments.end(),
                           [](const auto& entry) { return entry.second.has_value(); }),
               "prepare_qat: qconfigs: expected a QConfig for some module (pass "
               "get_default_qat_qconfig()), got none");
  QConfigRollback rollback(assignments);
  assign(std::move(assignments));
  std::map<const Module*, std::shared_ptr<Module>> made;
  std::vector<QatReplacement> replacements;
  plan_qat(model, "", mapping, made, replacements);
  for (const QatReplacement& replacement : replacements) {
    replacement.parent->replace_child(replacement.name, replacement.module);
  }
  rollback.keep_new();
  add_observer_(model, default_static_quant_module_mappings());
}

namespace {

template <typename Change>
void for_fake_quantizers(Module& model, Change&& change) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    for (const Module::NamedObserver& named : entry.module->named_observers()) {
      if (auto* fake = dynamic_cast<FakeQuantizeBase*>(named.observer.get())) change(*fake);
    }
  }
}

}  // namespace

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
