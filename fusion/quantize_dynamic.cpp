#include "quanta/fusion/quantize_dynamic.h"

#include <algorithm>
#include <map>
#include <memory>
#include <regex>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/detail/assign_qconfigs.h"
#include "quanta/fusion/detail/qconfig_scope.h"
#include "quanta/fusion/detail/swap_on_cpu.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/module_forms.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;
using Kind = DynamicSpec::Kind;

// The types whose rows name the dtype, but for `left_out`.
DynamicSpec spec_of_types(DType dtype, std::type_index left_out) {
  static_cast<void>(default_dynamic_qconfig_for(dtype));  // refuses other dtypes
  DynamicSpec spec;
  for (const nn::ModuleForm& row : nn::module_forms().rows()) {
    const std::vector<DType>& dtypes = row.kind.dynamic_dtypes;
    const bool is_named = std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
    if (is_named && row.type != left_out) spec.add_type(row.type);
  }
  return spec;
}

DynamicSpec default_spec(DType dtype) { return spec_of_types(dtype, typeid(void)); }

QConfigMapping to_mapping(const DynamicSpec& spec, DType dtype) {
  QConfigMapping mapping;
  for (const DynamicSpec::Entry& entry : spec.entries()) {
    const std::optional<QConfig> qconfig =
        entry.has_qconfig ? entry.qconfig : default_dynamic_qconfig_for(dtype);
    switch (entry.kind) {
      case Kind::Type:
        mapping.set_object_type(entry.type, qconfig);
        break;
      case Kind::Name:
        mapping.set_module_name(entry.text, qconfig);
        break;
      case Kind::Regex:
        mapping.set_module_name_regex(entry.text, qconfig);
        break;
    }
  }
  return mapping;
}

class DynamicPlan {
 public:
  DynamicPlan(Module& root, const DynamicSpec& spec, DType dtype, const ModuleMapping& mapping)
      : root_(root), mapping_(mapping) {
    const DynamicSpec used = spec.empty() ? default_spec(dtype) : spec;
    if (root.named_children().empty()) {
      problems_.push_back({"", fmt::format("{} is a leaf, and only children are replaced (wrap it "
                                           "in nn::Sequential)",
                                           root.type_name())});
      return;
    }
    const QConfigMapping qconfigs = to_mapping(used, dtype);
    find_unmatched(used);
    const QConfigScope scope(root);
    assign_qconfigs(root, qconfigs, Inherited::AsGiven);
    plan(root, "");
    if (!problems_.empty()) return;
    find_without_effect(used);
    if (problems_.empty() && swaps_.empty()) {
      problems_.push_back({"", fmt::format("none of the modules of {} is in the spec and has a "
                                           "dynamically quantized form",
                                           root.type_name())});
    }
  }

  const std::vector<Problem>& problems() const { return problems_; }

  void commit() {
    for (const Swap& swap : swaps_) swap.parent->replace_child(swap.name, swap.after);
    root_.eval();
  }

 private:
  struct Swap {
    Module* parent;
    std::string name;
    std::string path;
    ModulePtr after;
  };

  // Makes the replacements of all children below, without putting them in place.
  void plan(Module& parent, const std::string& prefix) {
    for (const Module::NamedChild& child : parent.named_children()) {
      const std::string path = prefix + child.name;
      const bool first_visit = made_.try_emplace(child.module.get(), child.module).second;
      if (first_visit) {
        const ModulePtr after = make_replacement(child.module, path);
        // What is replaced goes with its parts.
        if (after == child.module && !is_fused(*child.module)) plan(*child.module, path + ".");
        made_[child.module.get()] = after;
      }
      const ModulePtr& after = made_.at(child.module.get());
      if (after != child.module) swaps_.push_back({&parent, child.name, path, after});
    }
  }

  ModulePtr make_replacement(const ModulePtr& module, const std::string& path) {
    if (module->qconfig() == nullptr || mapping_.find(*module) == nullptr) return module;
    try {
      return swap_on_cpu(module,
                         [&](const ModulePtr& here) { return swap_module(here, mapping_); });
    } catch (const Error& error) {
      problems_.push_back({path, fmt::format("{}: {}", module->type_name(), error.what())});
      return module;
    }
  }

  // Paths and patterns that no module has.
  void find_unmatched(const DynamicSpec& spec) {
    const auto modules = root_.named_modules();
    for (const DynamicSpec::Entry& entry : spec.entries()) {
      if (entry.kind == Kind::Type) continue;
      const auto fits = [&](const Module::NamedModule& module) {
        return entry.kind == Kind::Name ? module.path == entry.text
                                        : std::regex_match(module.path, std::regex(entry.text));
      };
      if (std::none_of(modules.begin(), modules.end(), fits)) {
        problems_.push_back(
            {entry.text, fmt::format("{} has no module of that {}", root_.type_name(),
                                     entry.kind == Kind::Name ? "path" : "pattern")});
      }
    }
  }

  // Paths below which nothing was replaced.
  void find_without_effect(const DynamicSpec& spec) {
    for (const DynamicSpec::Entry& entry : spec.entries()) {
      const bool is_wanted = !entry.has_qconfig || entry.qconfig.has_value();
      if (entry.kind != Kind::Name || entry.text.empty() || !is_wanted) continue;
      // Also of a part of what was replaced.
      const auto is_below = [&](const Swap& swap) {
        return swap.path == entry.text || swap.path.starts_with(entry.text + ".") ||
               entry.text.starts_with(swap.path + ".");
      };
      if (std::none_of(swaps_.begin(), swaps_.end(), is_below)) {
        problems_.push_back(
            {entry.text, fmt::format("{} has no dynamically quantized form, nor has a module below",
                                     root_.get_submodule(entry.text)->type_name())});
      }
    }
  }

  Module& root_;
  const ModuleMapping& mapping_;
  std::map<const Module*, ModulePtr> made_;  // so that shared modules stay shared
  std::vector<Swap> swaps_;
  std::vector<Problem> problems_;
};

}  // namespace

DynamicSpec& DynamicSpec::add(Entry entry) {
  entries_.push_back(std::move(entry));
  return *this;
}

DynamicSpec& DynamicSpec::add_name(std::string path) {
  return add({.kind = Kind::Name, .text = std::move(path)});
}

DynamicSpec& DynamicSpec::add_name(std::string path, std::optional<QConfig> qconfig) {
  return add({.kind = Kind::Name,
              .text = std::move(path),
              .has_qconfig = true,
              .qconfig = std::move(qconfig)});
}

DynamicSpec& DynamicSpec::add_regex(std::string pattern) {
  return add({.kind = Kind::Regex, .text = std::move(pattern)});
}

DynamicSpec& DynamicSpec::add_regex(std::string pattern, std::optional<QConfig> qconfig) {
  return add({.kind = Kind::Regex,
              .text = std::move(pattern),
              .has_qconfig = true,
              .qconfig = std::move(qconfig)});
}

DynamicSpec torch_dynamic_spec(DType dtype) {
  return spec_of_types(dtype, typeid(nn::MultiheadAttention));
}

QConfig default_dynamic_qconfig_for(DType dtype) {
  if (dtype == DType::QInt8) return default_dynamic_qconfig();
  if (dtype == DType::Float16) return float16_dynamic_qconfig();
  if (dtype == DType::QUInt8) return float_qparams_weight_only_qconfig();
  if (dtype == DType::QUInt4x2) return float_qparams_weight_only_qconfig_4bit();
  throw ArgumentError(
      fmt::format("quantize_dynamic: dtype: expected QInt8, Float16, QUInt8 or QUInt4x2 (or a spec "
                  "that gives every entry a QConfig), got {}",
                  dtype));
}

void quantize_dynamic_(Module& model, const DynamicSpec& spec, DType dtype,
                       const ModuleMapping& mapping) {
  DynamicPlan plan(model, spec, dtype, mapping);
  std::string text;
  for (const Problem& problem : plan.problems()) {
    text += fmt::format("\n  '{}': {}", problem.path, problem.text);
  }
  QUANTA_CHECK(text.empty(),
               "quantize_dynamic: model: expected one that can be quantized as the spec says, "
               "got:{}",
               text);
  plan.commit();
}

namespace detail {

std::vector<Problem> try_quantize_dynamic(Module& copy, const DynamicSpec& spec, DType dtype,
                                          const ModuleMapping& mapping) {
  return DynamicPlan(copy, spec, dtype, mapping).problems();
}

}  // namespace detail
}  // namespace quanta
