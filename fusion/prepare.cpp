#include "quanta/fusion/prepare.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/misc.h"
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
    if (dynamic_cast<const nn::intrinsic::FusedModule*>(&occupant) != nullptr) {
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

}  // namespace

void propagate_qconfig_(Module& model, const QConfigMapping& mapping) {
  assign(planned_qconfigs(model, mapping));
}

void add_observer_(Module& model, const ModuleMapping& mapping) {
  std::set<const Module*> seen;
  add_observers(model, mapping, seen);
}

void prepare_(Module& model, const QConfigMapping& qconfigs, const ModuleMapping& mapping) {
  Assignments assignments = planned_qconfigs(model, qconfigs);
  QUANTA_CHECK(
      std::any_of(assignments.begin(), assignments.end(),
                  [](const auto& entry) { return entry.second.has_value(); }),
      "prepare: qconfigs: expected a QConfig for some module (pass get_default_qconfig()), "
      "got none");
  assign(std::move(assignments));
  add_observer_(model, mapping);
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
