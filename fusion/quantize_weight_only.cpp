#include "quanta/fusion/quantize_weight_only.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <typeindex>
#include <typeinfo>

#include "quanta/fusion/detail/weight_only_filter.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/nn/module_forms.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;

bool stands_in(std::string_view path, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [path](const std::string& name) {
    return path.substr(0, name.size()) == name &&
           (path.size() == name.size() || path[name.size()] == '.');
  });
}

// The row whose modules stand for ones of this exact class, or null.
const nn::ModuleForm* find_weight_only_form(const Module& module) {
  const nn::ModuleForm* last = nullptr;
  for (const nn::ModuleForm& row : nn::module_forms().rows()) {
    const bool is_source = std::find(row.sources.begin(), row.sources.end(),
                                     std::type_index(typeid(module))) != row.sources.end();
    if (row.form == nn::Form::WeightOnly && row.make_weight_only && is_source) last = &row;
  }
  return last;
}

class WeightOnlySwap {
 public:
  WeightOnlySwap(const WeightOnlyOptions& options, const WeightOnlyFilter& filter)
      : options_(options), filter_(filter) {}

  /// Makes the replacements of all children below, without putting them in place.
  void plan(Module& parent, const std::string& prefix) {
    for (const Module::NamedChild& child : parent.named_children()) {
      const std::string path = prefix + child.name;
      const Module& module = *child.module;
      if (const nn::ModuleForm* form = find_weight_only_form(module)) {
        if (takes(filter_, path, module)) {
          replacements_.push_back({&parent, child.name, replacement(module, *form, path)});
        }
      } else if (!is_fused(module)) {
        plan(*child.module, path + ".");
      }
    }
  }

  void commit(const Module& root) {
    QUANTA_CHECK(problems_.empty(),
                 "quantize_weight_only: model: expected layers that can be quantized so (others "
                 "can be left out with the filter), got:{}",
                 problems_);
    QUANTA_CHECK(!replacements_.empty(),
                 "quantize_weight_only: model: expected at least one nn::Linear or "
                 "nn::MultiheadAttention that the filter takes (the root itself is not replaced), "
                 "got none in {}",
                 root.type_name());
    for (const Replacement& each : replacements_)
      each.parent->replace_child(each.name, each.module);
  }

 private:
  struct Replacement {
    Module* parent;
    std::string name;
    ModulePtr module;
  };

  ModulePtr replacement(const Module& module, const nn::ModuleForm& form, const std::string& path) {
    ModulePtr& made = made_[&module];
    if (made != nullptr) return made;
    try {
      made = form.make_weight_only(module, options_);
      made->take_pre_hooks_from(module);
      made->take_forward_hooks_from(module);
      made->train(module.is_training());
    } catch (const Error& error) {
      problems_ += fmt::format("\n  '{}': {}", path, error.what());
    }
    return made;
  }

  const WeightOnlyOptions& options_;
  const WeightOnlyFilter& filter_;
  std::map<const Module*, ModulePtr> made_;  // so that shared modules stay shared
  std::vector<Replacement> replacements_;
  std::string problems_;
};

/// A misspelt name would change what is quantized in silence.
void check_names(const Module& model, std::string_view argument,
                 const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    try {
      static_cast<void>(model.get_submodule(name));
    } catch (const Error& error) {
      QUANTA_CHECK(false, "quantize_weight_only: {}: expected paths of the model, got '{}' ({})",
                   argument, name, error.what());
    }
  }
}

}  // namespace

void check_names(const Module& model, const WeightOnlyFilter& filter) {
  check_names(model, "filter.names", filter.names);
  check_names(model, "filter.skip", filter.skip);
}

bool takes(const WeightOnlyFilter& filter, const std::string& path, const nn::Module& layer) {
  return (filter.names.empty() || stands_in(path, filter.names)) && !stands_in(path, filter.skip) &&
         (!filter.accept || filter.accept(path, layer));
}

void quantize_weight_only_(Module& model, const WeightOnlyOptions& options,
                           const WeightOnlyFilter& filter) {
  check_names(model, filter);
  WeightOnlySwap swap(options, filter);
  swap.plan(model, "");
  swap.commit(model);
}

}  // namespace quanta
