#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <typeindex>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/nn/module_forms.h"

// Mappings are plain values: many threads may read one at once.

namespace quanta {

/// Which module type becomes which, by exact type: a subclass of nn::Linear is not nn::Linear.
/// A plain value: copy the default one and extend it.
class ModuleMapping {
 public:
  /// Modules of type T are replaced by what `from_float` returns.
  template <typename T>
  ModuleMapping& add(FromFloat from_float) {
    return add(typeid(T), std::move(from_float));
  }
  ModuleMapping& add(std::type_index type, FromFloat from_float) {
    table_[type] = std::move(from_float);
    return *this;
  }
  template <typename T>
  ModuleMapping& remove() {
    table_.erase(typeid(T));
    return *this;
  }
  /// Null when the module's type is not in the table.
  const FromFloat* find(const nn::Module& module) const;

 private:
  std::map<std::type_index, FromFloat> table_;
};

// The default mappings hold what the table of module forms says (nn/module_forms.h), registered
// rows included. What they give stays valid and as it is for good.

/// Float and qat modules to quantized ones: torch's get_default_static_quant_module_mappings().
const ModuleMapping& default_static_quant_module_mappings();
/// Float modules to those that train with fake quantization: torch's
/// get_default_qat_module_mappings(), and Conv1d, ConvReLU1d, Embedding and EmbeddingBag, which
/// torch leaves to the user. Embeddings need a QConfig of their own
/// (default_embedding_qat_qconfig()) or a null one.
const ModuleMapping& default_qat_module_mappings();

/// Float to dynamically quantized modules, and embeddings to ones with quantized tables: torch's
/// get_default_dynamic_quant_module_mappings(). Convolutions are not in it.
const ModuleMapping& default_dynamic_quant_module_mappings();

/// Weighted layers and embeddings to the float modules of nn::reference, which compute with weights
/// as quantizing leaves them: what torch's convert(is_reference=True) uses. Activations stay float:
///   convert(prepared, {.mapping = default_static_quant_reference_module_mappings()})
const ModuleMapping& default_static_quant_reference_module_mappings();

/// Modules with an observed form of their own: a float LSTM has no results that could be observed
/// inside, so prepare replaces it by one that is made of observable parts, and convert replaces
/// that one by its quantized form. By exact type. torch's
/// float_to_observed_custom_module_class and observed_to_quantized_custom_module_class.
class CustomModuleMapping {
 public:
  struct Observed {
    FromFloat from_float;
    OutputObserver output = OutputObserver::Attach;
  };
  struct Quantized {
    FromFloat from_observed;
    CustomParts parts = CustomParts::Keep;
  };

  /// prepare replaces a Float that has a QConfig by what `from_float` returns; its parts inherit
  /// the QConfig.
  template <typename Float>
  CustomModuleMapping& add_observed(FromFloat from_float,
                                    OutputObserver output = OutputObserver::Attach) {
    return add_observed(typeid(Float), {std::move(from_float), output});
  }
  CustomModuleMapping& add_observed(std::type_index type, Observed form) {
    observed_[type] = std::move(form);
    return *this;
  }
  /// convert replaces an ObservedType that has a QConfig by what `from_observed` returns.
  template <typename ObservedType>
  CustomModuleMapping& add_quantized(FromFloat from_observed,
                                     CustomParts parts = CustomParts::Keep) {
    return add_quantized(typeid(ObservedType), {std::move(from_observed), parts});
  }
  CustomModuleMapping& add_quantized(std::type_index type, Quantized form) {
    quantized_[type] = std::move(form);
    return *this;
  }
  /// Forgets a type, float or observed.
  template <typename T>
  CustomModuleMapping& remove() {
    observed_.erase(typeid(T));
    quantized_.erase(typeid(T));
    return *this;
  }

  /// Null when the module's type is not in the table.
  const Observed* find_observed(const nn::Module& float_module) const;
  const Quantized* find_quantized(const nn::Module& observed) const;

 private:
  std::map<std::type_index, Observed> observed_;
  std::map<std::type_index, Quantized> quantized_;
};

/// LSTM and MultiheadAttention by way of nn::quantizable: torch's
/// get_default_custom_config_dict().
const CustomModuleMapping& default_custom_module_mapping();

/// Which modules get which QConfig. For each module the first that says something wins:
/// its own set_qconfig, its path, a regular expression on its path, its type, its parent's.
/// A null QConfig (std::nullopt) leaves the module and what is below it in float.
class QConfigMapping {
 public:
  QConfigMapping() = default;
  /// One QConfig for all.
  QConfigMapping(QConfig global)
      : global_(std::move(global)) {}  // NOLINT(google-explicit-constructor)

  QConfigMapping& set_global(std::optional<QConfig> qconfig);
  template <typename T>
  QConfigMapping& set_object_type(std::optional<QConfig> qconfig) {
    return set_object_type(typeid(T), std::move(qconfig));
  }
  QConfigMapping& set_object_type(std::type_index type, std::optional<QConfig> qconfig);
  QConfigMapping& set_module_name(std::string path, std::optional<QConfig> qconfig);
  /// ECMAScript, matched against the whole path; throws ArgumentError when malformed.
  QConfigMapping& set_module_name_regex(std::string pattern, std::optional<QConfig> qconfig);

  const std::optional<QConfig>& global() const noexcept { return global_; }
  /// The paths of set_module_name, sorted.
  std::vector<std::string> module_names() const;
  /// What was set for types, paths and patterns; patterns in the order in which they are tried.
  using ByType = std::map<std::type_index, std::optional<QConfig>>;
  using ByName = std::map<std::string, std::optional<QConfig>>;
  using ByRegex = std::vector<std::pair<std::string, std::optional<QConfig>>>;
  const ByType& by_type() const noexcept { return by_type_; }
  const ByName& by_name() const noexcept { return by_name_; }
  const ByRegex& by_regex() const noexcept { return by_regex_; }
  /// The same mapping with what `change` makes of each of its QConfigs.
  QConfigMapping transformed(const std::function<QConfig(const QConfig&)>& change) const;
  /// What the mapping says of this module itself, or nothing.
  std::optional<std::optional<QConfig>> find(const nn::Module& module,
                                             const std::string& path) const;

 private:
  std::optional<QConfig> global_;
  ByName by_name_;
  ByRegex by_regex_;
  ByType by_type_;
};

}  // namespace quanta
