#include "quanta/fusion/convert.h"

#include <map>
#include <string>
#include <vector>

#include "quanta/fusion/detail/float_islands.h"
#include "quanta/fusion/detail/swap_on_cpu.h"
#include "quanta/fusion/detail/uncalibrated.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/nn/module_forms.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;

// DeQuantStub and Dropout have nothing to observe, and what embeddings give out stays float; a
// QConfig without an activation observer asks for none either.
bool needs_observer(const Module& module) {
  const nn::FloatKind& kind = nn::module_forms().kind(module);
  return kind.observe != nn::Observe::Nothing && !kind.float_result && module.qconfig()->activation;
}

// What is wrong with converting this module, or "".
std::string problem_with(const Module& module, Uncalibrated uncalibrated) {
  if (!needs_observer(module) || uncalibrated == Uncalibrated::Allow) return {};
  const std::shared_ptr<Observer>& observer = module.activation_post_process();
  if (observer == nullptr) return "has no observer (call prepare first)";
  if (!observer->has_data()) {
    return "its observer saw no data (run calibration batches through the prepared model; a module "
           "that is never called can be left out with a null QConfig)";
  }
  return {};
}

ModulePtr with_hooks(ModulePtr replacement, const Module& original) {
  QUANTA_CHECK(
      replacement != nullptr && replacement.get() != &original,
      "swap_module: mapping: expected a from_float that returns a new module for {}, got {}",
      original.type_name(), replacement == nullptr ? "null" : "the same one");
  replacement->take_pre_hooks_from(original);
  replacement->take_forward_hooks_from(original);
  // Forms that are copies of the float module have its list as well.
  replacement->set_forward_calls(nullptr);
  replacement->set_float_call_name({});
  replacement->train(original.is_training());
  return replacement;
}

class Converter {
 public:
  explicit Converter(const ConvertOptions& options) : options_(options) {}

  // Makes the replacements of all children below, without putting them in place.
  void plan(Module& parent, const std::string& prefix) {
    for (const Module::NamedChild& child : parent.named_children()) {
      const std::string path = prefix + child.name;
      const bool whole =
          is_whole(*child.module) || options_.custom.find_quantized(*child.module) != nullptr;
      const bool first_visit = !made_.contains(child.module.get());
      if (!whole && first_visit) plan(*child.module, path + ".");
      const ModulePtr replacement =
          first_visit ? replace(child.module, path) : made_.at(child.module.get());
      made_[child.module.get()] = replacement;
      if (replacement != child.module) replacements_.push_back({&parent, child.name, replacement});
    }
  }

  void commit(Module& root) {
    const ConvertedCalls calls = convert_forward_calls(root, problems_);
    QUANTA_CHECK(problems_.empty(),
                 "convert: model: expected a prepared and calibrated model, got:{}", problems_);
    QUANTA_CHECK(
        !replacements_.empty() || !root.named_children().empty(),
        "convert: model: expected a network with layers below it, got a single {}: the "
        "root itself is not replaced; wrap it in nn::QuantWrapper or nn::Sequential before "
        "prepare",
        root.type_name());
    QUANTA_CHECK(!replacements_.empty(),
                 "convert: model: expected modules with a QConfig that can be quantized (call "
                 "prepare first; the root itself is not replaced), got none in {}",
                 root.type_name());
    // Some of these modules end when others take their places.
    for (const auto& [module, converted] : calls) module->set_forward_calls(converted);
    put_in_place();
    for (const Module::NamedModule& entry : root.named_modules()) {
      entry.module->clear_qconfig();
      entry.module->set_activation_post_process(nullptr);
    }
  }

 private:
  struct Replacement {
    Module* parent;
    std::string name;
    ModulePtr module;
  };

  void put_in_place() const {
    for (const Replacement& replacement : replacements_) {
      replacement.parent->replace_child(replacement.name, replacement.module);
    }
  }

  ModulePtr replace(const ModulePtr& module, const std::string& path) {
    if (module->qconfig() == nullptr) return module;
    const CustomModuleMapping::Quantized* custom = options_.custom.find_quantized(*module);
    if (custom == nullptr && options_.mapping.find(*module) == nullptr) return module;
    std::string problem =
        custom == nullptr ? problem_with(*module, options_.uncalibrated) : std::string();
    if (problem.empty()) {
      try {
        return swap_on_cpu(module, [&](const ModulePtr& here) {
          if (custom != nullptr) return swap_custom(here, *custom, path);
          return has_missing_data(*here) ? swap_uncalibrated(here)
                                         : swap_module(here, options_.mapping);
        });
      } catch (const Error& error) {
        problem = error.what();
      }
    }
    problems_ += fmt::format("\n  {} '{}': {}", module->type_name(), path, problem);
    return module;
  }

  ModulePtr swap_custom(const ModulePtr& module, const CustomModuleMapping::Quantized& custom,
                        const std::string& path) {
    if (custom.parts == CustomParts::Keep) {
      return with_hooks(custom.from_observed(*module), *module);
    }
    const ModulePtr converted = module->clone();
    Converter parts(options_);
    parts.plan(*converted, path + ".");
    // Each part's problem is listed by its own path.
    if (!parts.problems_.empty()) {
      problems_ += parts.problems_;
      return module;
    }
    parts.put_in_place();
    return with_hooks(custom.from_observed(*converted), *module);
  }

  static bool has_missing_data(const Module& module) {
    const std::shared_ptr<Observer>& observer = module.activation_post_process();
    return needs_observer(module) && (observer == nullptr || !observer->has_data());
  }

  ModulePtr swap_uncalibrated(const ModulePtr& module) const {
    const std::shared_ptr<Observer>& observer = module->activation_post_process();
    const DType dtype = observer == nullptr ? DType::QUInt8 : observer->dtype();
    return with_hooks(from_uncalibrated(module, *options_.mapping.find(*module), dtype,
                                        module->qconfig()->weight),
                      *module);
  }

  const ConvertOptions& options_;
  std::map<const Module*, ModulePtr> made_;  // so that shared modules stay shared
  std::vector<Replacement> replacements_;
  std::string problems_;
};

}  // namespace

ModulePtr swap_module(const ModulePtr& module, const ModuleMapping& mapping) {
  QUANTA_CHECK(module != nullptr, "swap_module: module: expected a module, got null");
  if (module->qconfig() == nullptr) return module;
  const FromFloat* from_float = mapping.find(*module);
  if (from_float == nullptr) return module;
  return with_hooks((*from_float)(*module), *module);
}

void convert_(Module& model, const ConvertOptions& options) {
  Converter converter(options);
  converter.plan(model, "");
  converter.commit(model);
}

}  // namespace quanta
