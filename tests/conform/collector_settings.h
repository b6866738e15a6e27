#pragma once

#include <map>
#include <string>

#include "quanta/observers/collector_kinds.h"
#include "suite.h"

namespace quanta::conform {

/// The attributes of a case that are settings of a class of collectors, in `settings`.
/// `other_names`: what the suite calls a setting, where that is not its name.
inline void take_settings(const Case& test, const std::string& class_name, Settings& settings,
                          const std::map<std::string, std::string>& other_names = {}) {
  std::vector<std::string> names;
  for (const CollectorKind& kind : collector_kinds()) {
    if (kind.name != class_name) continue;
    names = kind.required;
    for (const auto& [name, value] : kind.defaults) names.push_back(name);
  }
  for (const std::string& name : names) {
    const auto other = other_names.find(name);
    const std::string& key = other == other_names.end() ? name : other->second;
    if (!test.has_attr(key)) continue;
    const Json& value = test.attr(key);
    if (value.is_boolean()) settings.set(name, value.get<bool>());
    if (value.is_number_integer()) settings.set(name, value.get<std::int64_t>());
    if (value.is_number_float()) settings.set(name, value.get<double>());
    if (value.is_string()) settings.set(name, value.get<std::string>());
    if (value.is_array()) settings.set(name, dims_from_json(value));
  }
}

}  // namespace quanta::conform
