#include "quanta/fusion/prepare.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/detail/assign_qconfigs.h"
#include "quanta/fusion/detail/fitting_qconfig.h"
#include "quanta/fusion/detail/float_islands.h"
#include "quanta/fusion/detail/observe.h"
#include "quanta/fusion/detail/qconfig_scope.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/nn/detail/child_path.h"
#include "quanta/nn/module_forms.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/warning.h"

namespace quanta {
namespace {

using nn::Module;
using nn::detail::child_path;

bool has_qconfig(const Module& model) {
  const auto modules = model.named_modules();
  return std::any_of(modules.begin(), modules.end(),
                     [](const auto& entry) { return entry.module->qconfig() != nullptr; });
}

// The QConfig that each module below gets, found before the first one is set.
using Assignments = std::vector<std::pair<Module*, std::optional<QConfig>>>;

// QConfigs that a user gave to this very module, or to its type, are taken as they are.
void check_own_qconfig(const Module& module, const std::string& path,
                       const std::optional<QConfig>& qconfig) {
  if (!qconfig || !qconfig->weight || !nn::module_forms().kind(module).per_tensor_weight) return;
  QUANTA_CHECK(!is_per_channel(qconfig->weight()->qscheme()),
               "prepare: qconfig: expected a per-tensor weight observer for {} '{}' (it has no "
               "per-channel weights; without a QConfig of its own it gets one that fits), got {}",
               module.type_name(), path, qconfig->weight.name);
}

void propagate(Module& module, const QConfigMapping& mapping, const std::string& path,
               const std::optional<QConfig>& inherited, Inherited inherited_form,
               std::set<const Module*>& seen, Assignments& assignments) {
  if (!seen.insert(&module).second) return;
  std::optional<QConfig> effective = inherited;
  bool is_own = true;
  if (module.has_qconfig_attribute()) {
    effective = module.qconfig() == nullptr ? std::nullopt : std::optional(*module.qconfig());
  } else if (const auto found = mapping.find(module, path)) {
    effective = *found;
  } else {
    is_own = false;
  }
  if (is_own) check_own_qconfig(module, path, effective);
  for (const Module::NamedChild& child : module.named_children()) {
    propagate(*child.module, mapping, child_path(path, child.name), effective, inherited_form, seen,
              assignments);
  }
  // Modules below inherit the QConfig as it was given.
  if (effective && !is_own && inherited_form == Inherited::Fitting) {
    effective = fitting_qconfig(module, *effective);
  }
  assignments.emplace_back(&module, std::move(effective));
}

// Dropout and batch norms would change what calibration sees.
void warn_of_train_mode(const Module& model) {
  if (!model.is_training()) return;
  warn(
      fmt::format("prepare: {} is in train mode: call eval() before it is prepared for calibration "
                  "(prepare_qat "
                  "is for training)",
                  model.type_name()));
}

// A path that is misspelled would leave its layer quantized in silence.
void require_known_names(const Module& model, const QConfigMapping& mapping) {
  std::set<std::string> paths;
  for (const Module::NamedModule& entry : model.named_modules()) paths.insert(entry.path);
  for (const std::string& name : mapping.module_names()) {
    QUANTA_CHECK(paths.contains(name),
                 "prepare: qconfigs: expected paths of modules in {} (named_modules() lists them), "
                 "got '{}'",
                 model.type_name(), name);
  }
}

}  // namespace

void assign_qconfigs(Module& model, const QConfigMapping& mapping, Inherited inherited) {
  std::set<const Module*> seen;
  Assignments assignments;
  propagate(model, mapping, "", mapping.global(), inherited, seen, assignments);
  for (const auto& [module, qconfig] : assignments) module->set_qconfig(qconfig);
}

void propagate_qconfig_(Module& model, const QConfigMapping& mapping) {
  require_known_names(model, mapping);
  assign_qconfigs(model, mapping, Inherited::Fitting);
}

void prepare_(Module& model, const QConfigMapping& qconfigs, const ModuleMapping& mapping,
              const CustomModuleMapping& custom) {
  require_unprepared(model, "prepare");
  warn_of_train_mode(model);
  QConfigScope scope(model);
  propagate_qconfig_(model, qconfigs);
  QUANTA_CHECK(
      has_qconfig(model),
      "prepare: qconfigs: expected a QConfig for some module (pass get_default_qconfig()), "
      "got none");
  CustomModulePlan plan(custom);
  plan.visit(model, "");
  plan.put_in_place();
  scope.keep();
  add_observer_(model, mapping);
  plan.observe_outputs();
  // A graph's nodes were looked through when it was made ready.
  if (dynamic_cast<const graph::Model*>(&model) == nullptr) {
    watch_forward_calls(model, mapping, custom);
  }
}

namespace detail {

void keep_needed_calls(Module& prepared, Module& trial, std::span<const Tensor> example,
                       const ModuleMapping& mapping, const CustomModuleMapping& custom) {
  const autograd::NoGradGuard no_grad;
  trial.eval();
  trial(example);
  convert_(trial, {.mapping = mapping, .uncalibrated = Uncalibrated::Allow, .custom = custom});
  trial(example);  // warns of what runs in float
  keep_calls_that_ran(prepared, trial);
}

}  // namespace detail

void get_observer_dict(const Module& model, ObserverDict& target_dict, std::string_view prefix) {
  constexpr std::string_view kName = "activation_post_process";
  for (const Module::NamedModule& entry : model.named_modules()) {
    const std::string path = child_path(prefix, entry.path);
    for (const auto& [name, observer] : entry.module->named_observers()) {
      // Those of calls in forward() have no counterpart in torch.
      if (name != kName && name != "weight_fake_quant") continue;
      const std::string key = child_path(path, name);
      if (name == kName) target_dict[key] = observer;
      const auto* fake = dynamic_cast<const FakeQuantizeBase*>(observer.get());
      if (fake != nullptr && fake->observer() != nullptr) {
        target_dict[child_path(key, kName)] = fake->observer();
      }
    }
  }
}

ObserverDict get_observer_dict(const Module& model, std::string_view prefix) {
  ObserverDict result;
  get_observer_dict(model, result, prefix);
  return result;
}

}  // namespace quanta
