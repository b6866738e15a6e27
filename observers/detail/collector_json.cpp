#include "quanta/observers/detail/collector_json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "quanta/observers/collector_kinds.h"
#include "quanta/runtime/error.h"

namespace quanta::detail {
namespace {

// dtypes, schemes and numbers that JSON has not stand as text.
struct ToJson {
  Json operator()(std::monostate) const { return {}; }
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const {
    return std::isfinite(value) ? Json(value) : Json(to_string(Setting(value)));
  }
  Json operator()(DType value) const { return to_string(Setting(value)); }
  Json operator()(QScheme value) const { return to_string(Setting(value)); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const Dims& value) const {
    Json::Array items;
    for (const std::int64_t each : value) items.emplace_back(each);
    return items;
  }
};

Json to_json(const Settings& settings) {
  Json::Object members;
  for (const auto& [name, value] : settings)
    members.emplace_back(name, std::visit(ToJson{}, value));
  return members;
}

Setting setting_from(const Json& value, const std::string& where) {
  if (value.is_null()) return {};
  if (const bool* flag = value.as_bool()) return *flag;
  if (const std::int64_t* whole = value.as_int()) return *whole;
  if (value.is_number()) return value.as_number();
  if (const std::string* text = value.as_string()) return *text;
  const Json::Array* items = value.as_array();
  if (items == nullptr || items->size() > Dims::kMaxDims) {
    throw FileError(fmt::format("{}: expected a setting, got {}", where, value.kind()));
  }
  Dims dims;
  for (const Json& item : *items) {
    if (item.as_int() == nullptr) {
      throw FileError(fmt::format("{}: expected whole numbers, got {}", where, item.kind()));
    }
    dims.push_back(*item.as_int());
  }
  return dims;
}

}  // namespace

Json to_json(const Collector& collector) {
  // A class that cannot be made again is refused here, not when the file is read.
  static_cast<void>(make_collector(collector.name(), collector.settings()));
  return Json::Object{{"kind", collector.name()}, {"settings", to_json(collector.settings())}};
}

std::shared_ptr<Collector> collector_from(const Json& entry, const std::string& where) {
  const Json* kind = entry.find("kind");
  const Json* listed = entry.find("settings");
  if (kind == nullptr || kind->as_string() == nullptr || listed == nullptr ||
      listed->as_object() == nullptr) {
    throw FileError(
        fmt::format("{}: expected an object with the text kind and the object settings, got {}",
                    where, entry.kind()));
  }
  Settings settings;
  for (const auto& [name, value] : *listed->as_object()) {
    settings.set(name, setting_from(value, fmt::format("{}: {}", where, name)));
  }
  return make_collector(*kind->as_string(), settings);
}

}  // namespace quanta::detail
