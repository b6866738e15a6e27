#include "quanta/fusion/fuse_modules.h"

#include <algorithm>
#include <set>
#include <typeinfo>

#include "quanta/nn/misc.h"
#include "quanta/nn/module_forms.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;
using Modules = std::vector<ModulePtr>;

const Fuser* find_fuser(const FuserTable& table, const std::vector<std::type_index>& types) {
  const auto found = std::find_if(table.rbegin(), table.rend(),
                                  [&](const auto& entry) { return entry.first == types; });
  return found == table.rend() ? nullptr : &found->second;
}

const Fuser* find_fuser(nn::FuseFor use, const std::vector<std::type_index>& types) {
  const std::vector<nn::FusionRule>& rules = nn::module_forms().fusions();
  const auto found = std::find_if(rules.rbegin(), rules.rend(), [&](const nn::FusionRule& rule) {
    return rule.use == use && rule.sequence == types;
  });
  return found == rules.rend() ? nullptr : &found->fuse;
}

// A module's parent and its name there.
struct Place {
  Module* parent;
  std::string name;
};

Place find_place(Module& model, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {&model, path};
  return {model.get_submodule(path.substr(0, dot)).get(), path.substr(dot + 1)};
}

void require_unprepared(const Module& model) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    QUANTA_CHECK(entry.module->activation_post_process() == nullptr,
                 "fuse_modules: model: expected one that is not prepared yet, as fused modules are "
                 "observed as one, got an observer on '{}' (fuse first, then prepare)",
                 entry.path);
  }
}

void fuse(Module& model, const std::vector<std::vector<std::string>>& groups,
          const FuserTable& additional, nn::FuseFor use) {
  require_unprepared(model);
  struct Replacement {
    Place place;
    ModulePtr module;
  };
  // All replacements are made before the first is put in place.
  std::vector<Replacement> replacements;
  std::vector<std::pair<ModulePtr, ModulePtr>> moved_hooks;  // first and last of each group
  std::set<std::string> seen;
  for (const std::vector<std::string>& group : groups) {
    Modules modules;
    std::vector<std::type_index> types;
    std::string type_names;
    for (const std::string& path : group) {
      QUANTA_CHECK(seen.insert(path).second,
                   "fuse_modules: groups: expected each module once, got '{}' twice", path);
      modules.push_back(model.get_submodule(path));
      const Module& module = *modules.back();
      types.emplace_back(typeid(module));
      type_names += (type_names.empty() ? "" : ", ") + module.type_name();
    }
    QUANTA_CHECK(group.size() >= 2, "fuse_modules: groups: expected two or more modules, got [{}]",
                 fmt::join(group, ", "));
    const Fuser* fuser = find_fuser(additional, types);
    if (fuser == nullptr) fuser = find_fuser(use, types);
    QUANTA_CHECK(fuser != nullptr,
                 "fuse_modules: groups: expected a known sequence (Conv, BatchNorm, ReLU; Linear, "
                 "ReLU; ...), got [{}] = ({})",
                 fmt::join(group, ", "), type_names);
    for (const ModulePtr& module : modules) {
      QUANTA_CHECK(module->is_training() == modules[0]->is_training(),
                   "fuse_modules: groups: expected all of [{}] in train or all in eval mode",
                   fmt::join(group, ", "));
    }
    ModulePtr fused;
    try {
      fused = (*fuser)(modules);
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("{} (fusing [{}])", error.what(), fmt::join(group, ", ")));
    }
    QUANTA_CHECK(fused != nullptr,
                 "fuse_modules: additional: expected a fuser that returns a module for ({}), got "
                 "null",
                 type_names);
    fused->take_pre_hooks_from(*modules.front());
    fused->take_forward_hooks_from(*modules.back());
    moved_hooks.emplace_back(modules.front(), modules.back());
    fused->take_qconfig_from(*modules.front());
    for (std::size_t i = 0; i < group.size(); ++i) {
      ModulePtr module = fused;
      if (i > 0) {
        module = nn::make_module<nn::Identity>();
        module->train(modules[i]->is_training());
      }
      replacements.push_back({find_place(model, group[i]), std::move(module)});
    }
  }
  for (const auto& [first, last] : moved_hooks) {
    first->clear_pre_hooks();
    last->clear_forward_hooks();
  }
  for (Replacement& replacement : replacements) {
    replacement.place.parent->replace_child(replacement.place.name, std::move(replacement.module));
  }
}

}  // namespace

void fuse_modules(Module& model, const std::vector<std::vector<std::string>>& groups,
                  const FuserTable& additional) {
  fuse(model, groups, additional, nn::FuseFor::Inference);
}

void fuse_modules_qat(Module& model, const std::vector<std::vector<std::string>>& groups,
                      const FuserTable& additional) {
  fuse(model, groups, additional, nn::FuseFor::Training);
}

}  // namespace quanta
