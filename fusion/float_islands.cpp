#include "quanta/fusion/float_islands.h"

#include <map>
#include <set>

#include "quanta/fusion/detail/float_islands.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/nn/container.h"
#include "quanta/nn/detail/child_path.h"
#include "quanta/nn/module_forms.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::ForwardCalls;
using nn::Module;
using nn::Observe;

bool is_container(const Module& module) {
  return dynamic_cast<const nn::ModuleList*>(&module) != nullptr ||
         dynamic_cast<const nn::ModuleDict*>(&module) != nullptr;
}

bool is_stub(const Module& module) {
  return dynamic_cast<const nn::QuantStub*>(&module) != nullptr ||
         dynamic_cast<const nn::DeQuantStub*>(&module) != nullptr;
}

class Watcher {
 public:
  Watcher(const ModuleMapping& mapping, const CustomModuleMapping& custom)
      : mapping_(mapping), custom_(custom) {}

  // `caller`: the observers of the module in whose forward this one is called, or none.
  void visit(Module& module, const std::string& path, const ObserverFactory& caller) {
    if (!seen_.insert(&module).second) return;
    const nn::ModuleForms& forms = nn::module_forms();
    const bool observes_calls = forms.kind(module).observe == Observe::Calls;
    const QConfig* qconfig = module.qconfig();
    if (is_container(module)) return visit_children(module, path, caller);
    if (qconfig == nullptr) {
      if (caller && observes_calls) {
        module.set_forward_calls(std::make_shared<ForwardCalls>(caller));
      } else if (caller && !is_stub(module)) {
        module.set_float_call_name(path);
      }
      return visit_children(module, path, {});  // some may have a QConfig of their own
    }
    const bool is_replaced =
        is_whole(module) || observes_calls || module.activation_post_process() != nullptr ||
        forms.form(module) != nn::Form::Float || mapping_.find(module) != nullptr ||
        custom_.find_observed(module) != nullptr || custom_.find_quantized(module) != nullptr;
    if (is_replaced || !qconfig->activation) return;
    module.set_forward_calls(std::make_shared<ForwardCalls>(qconfig->activation));
    visit_children(module, path, qconfig->activation);
  }

 private:
  void visit_children(Module& module, const std::string& path, const ObserverFactory& caller) {
    for (const Module::NamedChild& child : module.named_children()) {
      visit(*child.module, nn::detail::child_path(path, child.name), caller);
    }
  }

  const ModuleMapping& mapping_;
  const CustomModuleMapping& custom_;
  std::set<const Module*> seen_;
};

}  // namespace

void watch_forward_calls(Module& root, const ModuleMapping& mapping,
                         const CustomModuleMapping& custom) {
  Watcher(mapping, custom).visit(root, "", {});
}

ConvertedCalls convert_forward_calls(const Module& root, std::string& problems) {
  ConvertedCalls result;
  for (const Module::NamedModule& entry : root.named_modules()) {
    const std::shared_ptr<ForwardCalls>& calls = entry.module->forward_calls();
    if (calls == nullptr || !calls->is_observing()) continue;
    try {
      std::shared_ptr<ForwardCalls> made = calls->converted();
      result.emplace_back(entry.module, made->calls().empty() ? nullptr : std::move(made));
    } catch (const Error& error) {
      problems +=
          fmt::format("\n  {} '{}': {}", entry.module->type_name(), entry.path, error.what());
    }
  }
  return result;
}

void keep_calls_that_ran(Module& prepared, const Module& trial) {
  std::map<std::string, const Module*> ran;
  for (const Module::NamedModule& entry : trial.named_modules()) ran[entry.path] = entry.module;
  for (const Module::NamedModule& entry : prepared.named_modules()) {
    if (entry.module->forward_calls() == nullptr) continue;
    const auto found = ran.find(entry.path);
    const ForwardCalls* calls = found == ran.end() ? nullptr : found->second->forward_calls().get();
    if (calls == nullptr) {
      entry.module->set_forward_calls(nullptr);
      continue;
    }
    entry.module->set_forward_calls(
        std::make_shared<ForwardCalls>(entry.module->forward_calls()->activation(), *calls));
  }
}

std::string FloatIsland::to_string() const {
  const std::string where = path.empty() ? "forward" : fmt::format("forward of '{}'", path);
  if (is_int8) return fmt::format("{}: {} runs on codes", where, call);
  return fmt::format("{}: {}{}{} runs in float, between dequantize and quantize", where,
                     is_module ? "'" : "", call, is_module ? "'" : "");
}

std::vector<FloatIsland> float_islands(const Module& converted) {
  std::vector<FloatIsland> result;
  for (const Module::NamedModule& entry : converted.named_modules()) {
    const std::shared_ptr<ForwardCalls>& calls = entry.module->forward_calls();
    if (calls == nullptr) continue;
    for (std::size_t i = 0; i < calls->calls().size(); ++i) {
      const ForwardCalls::Ran ran = calls->how_it_ran(i);
      if (ran == ForwardCalls::Ran::AsItIs) continue;
      const ForwardCalls::Call& call = calls->calls()[i];
      result.push_back({.path = entry.path,
                        .call = call.name,
                        .is_module = call.is_module,
                        .is_int8 = ran == ForwardCalls::Ran::OnCodes});
    }
  }
  return result;
}

}  // namespace quanta
