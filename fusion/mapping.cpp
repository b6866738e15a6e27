#include "quanta/fusion/mapping.h"

#include <map>
#include <mutex>
#include <regex>
#include <typeinfo>

#include "quanta/nn/qat/module.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Form;
using nn::ModuleForm;
using nn::ModuleForms;

// A mapping made of the table, once for each state of it.
template <typename Mapping>
class MadeOfTable {
 public:
  using Make = Mapping (*)(const ModuleForms&);
  explicit MadeOfTable(Make make) : make_(make) {}

  const Mapping& get() {
    const ModuleForms& forms = nn::module_forms();
    const std::scoped_lock lock(mutex_);
    const auto found = made_.find(&forms);
    return found != made_.end() ? found->second : made_.emplace(&forms, make_(forms)).first->second;
  }

 private:
  Make make_;
  std::mutex mutex_;
  std::map<const ModuleForms*, Mapping> made_;
};

void add_row(ModuleMapping& mapping, const ModuleForm& row) {
  for (const std::type_index source : row.sources) mapping.add(source, row.make);
}

void add_rows(ModuleMapping& mapping, const ModuleForms& forms, Form form) {
  for (const ModuleForm& row : forms.rows()) {
    if (row.form == form && row.by_default) add_row(mapping, row);
  }
}

// What the float form of a qat module becomes, its weight quantized by the fake quantizer that was
// trained with it.
std::shared_ptr<nn::Module> convert_qat(const ModuleMapping& float_forms,
                                        const nn::Module& module) {
  const auto* qat = dynamic_cast<const nn::qat::QatModule*>(&module);
  QUANTA_CHECK(qat != nullptr, "convert: module: expected a module of nn::qat, got {}",
               module.type_name());
  QUANTA_CHECK(module.qconfig() != nullptr,
               "convert: module: expected a {} with a QConfig, got one without",
               module.type_name());
  const std::shared_ptr<nn::Module> source = qat->to_float();
  const FromFloat* from_float = float_forms.find(*source);
  QUANTA_CHECK(from_float != nullptr, "convert: module: expected a quantized form of {}, got none",
               source->type_name());
  QConfig qconfig = *module.qconfig();
  qconfig.weight.make = [fake = qat->weight_fake_quant()] { return fake->clone(); };
  source->set_qconfig(qconfig);
  source->set_activation_post_process(module.activation_post_process(),
                                      nn::Module::Observation::Explicit);
  return (*from_float)(*source);
}

bool is_class_of(const ModuleForms& forms, std::type_index type, Form form) {
  for (const ModuleForm& row : forms.rows()) {
    if (row.type == type && row.form == form) return true;
  }
  return false;
}

// Quantized forms of observed modules are made in a step of their own: see CustomModuleMapping.
bool is_custom(const ModuleForms& forms, const ModuleForm& row) {
  return row.form == Form::Quantized && is_class_of(forms, row.sources.front(), Form::Observed);
}

ModuleMapping make_static_mapping(const ModuleForms& forms) {
  ModuleMapping mapping;
  for (const ModuleForm& row : forms.rows()) {
    if (row.form == Form::Quantized && row.by_default && !is_custom(forms, row)) {
      add_row(mapping, row);
    }
  }
  const ModuleMapping float_forms = mapping;
  for (const ModuleForm& row : forms.rows()) {
    if (row.form != Form::Qat || !row.by_default) continue;
    mapping.add(row.type, [float_forms](const nn::Module& module) {
      return convert_qat(float_forms, module);
    });
  }
  return mapping;
}

ModuleMapping make_qat_mapping(const ModuleForms& forms) {
  ModuleMapping mapping;
  add_rows(mapping, forms, Form::Qat);
  return mapping;
}

// Embeddings have one quantized form for both workflows: their results are float in each.
bool gives_floats(const ModuleForms& forms, const ModuleForm& row) {
  for (const ModuleForm& other : forms.rows()) {
    if (other.type == row.sources.front() && other.kind.float_result) return true;
  }
  return false;
}

ModuleMapping make_dynamic_mapping(const ModuleForms& forms) {
  ModuleMapping mapping;
  for (const ModuleForm& row : forms.rows()) {
    if (row.form == Form::Quantized && row.by_default && gives_floats(forms, row)) {
      add_row(mapping, row);
    }
  }
  add_rows(mapping, forms, Form::Dynamic);
  return mapping;
}

ModuleMapping make_reference_mapping(const ModuleForms& forms) {
  ModuleMapping mapping;
  mapping.add<nn::QuantStub>(&nn::quantized::Quantize::from_float)
      .add<nn::DeQuantStub>(&nn::quantized::DeQuantize::from_float);
  add_rows(mapping, forms, Form::Reference);
  return mapping;
}

CustomModuleMapping make_custom_mapping(const ModuleForms& forms) {
  CustomModuleMapping mapping;
  for (const ModuleForm& row : forms.rows()) {
    if (!row.by_default) continue;
    for (const std::type_index source : row.sources) {
      if (row.form == Form::Observed) mapping.add_observed(source, {row.make, row.output});
      if (is_custom(forms, row)) mapping.add_quantized(source, {row.make, row.parts});
    }
  }
  return mapping;
}

}  // namespace

const FromFloat* ModuleMapping::find(const nn::Module& module) const {
  const auto found = table_.find(typeid(module));
  return found == table_.end() ? nullptr : &found->second;
}

const CustomModuleMapping::Observed* CustomModuleMapping::find_observed(
    const nn::Module& float_module) const {
  const auto found = observed_.find(typeid(float_module));
  return found == observed_.end() ? nullptr : &found->second;
}

const CustomModuleMapping::Quantized* CustomModuleMapping::find_quantized(
    const nn::Module& observed) const {
  const auto found = quantized_.find(typeid(observed));
  return found == quantized_.end() ? nullptr : &found->second;
}

const ModuleMapping& default_static_quant_module_mappings() {
  static MadeOfTable<ModuleMapping> mapping(&make_static_mapping);
  return mapping.get();
}

const ModuleMapping& default_qat_module_mappings() {
  static MadeOfTable<ModuleMapping> mapping(&make_qat_mapping);
  return mapping.get();
}

const ModuleMapping& default_dynamic_quant_module_mappings() {
  static MadeOfTable<ModuleMapping> mapping(&make_dynamic_mapping);
  return mapping.get();
}

const ModuleMapping& default_static_quant_reference_module_mappings() {
  static MadeOfTable<ModuleMapping> mapping(&make_reference_mapping);
  return mapping.get();
}

const CustomModuleMapping& default_custom_module_mapping() {
  static MadeOfTable<CustomModuleMapping> mapping(&make_custom_mapping);
  return mapping.get();
}

std::vector<std::string> QConfigMapping::module_names() const {
  std::vector<std::string> names;
  for (const auto& [path, qconfig] : by_name_) names.push_back(path);
  return names;
}

QConfigMapping QConfigMapping::transformed(
    const std::function<QConfig(const QConfig&)>& change) const {
  QConfigMapping result = *this;
  const auto apply = [&](std::optional<QConfig>& qconfig) {
    if (qconfig) qconfig = change(*qconfig);
  };
  apply(result.global_);
  for (auto& [type, qconfig] : result.by_type_) apply(qconfig);
  for (auto& [path, qconfig] : result.by_name_) apply(qconfig);
  for (auto& [pattern, qconfig] : result.by_regex_) apply(qconfig);
  return result;
}

QConfigMapping& QConfigMapping::set_global(std::optional<QConfig> qconfig) {
  global_ = std::move(qconfig);
  return *this;
}

QConfigMapping& QConfigMapping::set_object_type(std::type_index type,
                                                std::optional<QConfig> qconfig) {
  by_type_[type] = std::move(qconfig);
  return *this;
}

QConfigMapping& QConfigMapping::set_module_name(std::string path, std::optional<QConfig> qconfig) {
  by_name_[std::move(path)] = std::move(qconfig);
  return *this;
}

QConfigMapping& QConfigMapping::set_module_name_regex(std::string pattern,
                                                      std::optional<QConfig> qconfig) {
  try {
    const std::regex compiled(pattern);
  } catch (const std::regex_error& error) {
    throw ArgumentError(
        fmt::format("set_module_name_regex: pattern: expected a regular expression, got '{}' ({})",
                    pattern, error.what()));
  }
  by_regex_.emplace_back(std::move(pattern), std::move(qconfig));
  return *this;
}

std::optional<std::optional<QConfig>> QConfigMapping::find(const nn::Module& module,
                                                           const std::string& path) const {
  if (const auto found = by_name_.find(path); found != by_name_.end()) return found->second;
  for (const auto& [pattern, qconfig] : by_regex_) {
    if (std::regex_match(path, std::regex(pattern))) return qconfig;
  }
  if (const auto found = by_type_.find(typeid(module)); found != by_type_.end()) {
    return found->second;
  }
  return std::nullopt;
}

}  // namespace quanta
