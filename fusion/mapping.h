#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "quanta/nn/module.h"

namespace quanta {

/// Makes the replacement of an observed module; see the from_float functions in nn/quantized.
using FromFloat = std::function<std::shared_ptr<nn::Module>(const nn::Module&)>;

/// Which module type becomes which, by exact type: a subclass of nn::Linear is not nn::Linear.
/// A plain value: copy the default one and extend it.
class ModuleMapping {
 public:
  /// Modules of type T are replaced by what `from_float` returns.
  template <typename T>
  ModuleMapping& add(FromFloat from_float) {
    table_[typeid(T)] = std::move(from_float);
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

/// Float to quantized modules: torch's get_default_static_quant_module_mappings().
const ModuleMapping& default_static_quant_module_mappings();

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
    by_type_[typeid(T)] = std::move(qconfig);
    return *this;
  }
  QConfigMapping& set_module_name(std::string path, std::optional<QConfig> qconfig);
  /// ECMAScript, matched against the whole path; throws ArgumentError when malformed.
  QConfigMapping& set_module_name_regex(std::string pattern, std::optional<QConfig> qconfig);

  const std::optional<QConfig>& global() const noexcept { return global_; }
  /// What the mapping says of this module itself, or nothing.
  std::optional<std::optional<QConfig>> find(const nn::Module& module,
                                             const std::string& path) const;

 private:
  std::optional<QConfig> global_;
  std::map<std::string, std::optional<QConfig>> by_name_;
  std::vector<std::pair<std::string, std::optional<QConfig>>> by_regex_;
  std::map<std::type_index, std::optional<QConfig>> by_type_;
};

}  // namespace quanta
