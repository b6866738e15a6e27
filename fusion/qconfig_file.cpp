#include "quanta/fusion/qconfig_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/nn/module_forms.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/collector_json.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/given_qparams_observer.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/detail/text_file.h"

namespace quanta {
namespace {

using detail::Json;

constexpr const char* kFormat = "quanta.qconfig_mapping";
constexpr std::int64_t kVersion = 1;
constexpr const char* kGiven = "GivenQParamsObserver";

// Writing ----------------------------------------------------------------------------------------

Json given_json(const GivenQParamsObserver& observer) {
  const ObservedQParams qparams = observer.calculate_qparams();
  Json::Array scale, zero_point;
  for (const float each : qparams.scale.to_float_vector()) {
    scale.emplace_back(static_cast<double>(each));
  }
  for (const std::int64_t each : qparams.zero_point.to_int64_vector())
    zero_point.emplace_back(each);
  return Json::Object{{"kind", kGiven},
                      {"scale", std::move(scale)},
                      {"zero_point", std::move(zero_point)},
                      {"dtype", to_string(Setting(observer.dtype()))},
                      {"qscheme", to_string(Setting(observer.qscheme()))},
                      {"ch_axis", observer.ch_axis()},
                      {"quant_min", observer.quant_min()},
                      {"quant_max", observer.quant_max()}};
}

Json observer_json(const Observer& observer) {
  if (const auto* given = dynamic_cast<const GivenQParamsObserver*>(&observer)) {
    return given_json(*given);
  }
  if (const auto* fake = dynamic_cast<const FakeQuantize*>(&observer)) {
    return Json::Object{{"kind", fake->name()}, {"observer", observer_json(*fake->observer())}};
  }
  try {
    return detail::to_json(observer);
  } catch (const ArgumentError& error) {
    throw UnsupportedError(fmt::format(
        "to_json: qconfig: expected an observer that can be made again from its settings, got {} "
        "({})",
        observer.name(), error.what()));
  }
}

Json factory_json(const ObserverFactory& factory) {
  return factory ? observer_json(*factory()) : Json();
}

Json qconfig_json(const std::optional<QConfig>& qconfig) {
  if (!qconfig) return {};
  return Json::Object{{"activation", factory_json(qconfig->activation)},
                      {"weight", factory_json(qconfig->weight)}};
}

const std::string& type_name(std::type_index type) {
  for (const nn::ModuleForm& row : nn::module_forms().rows()) {
    if (row.type == type) return row.name;
  }
  throw UnsupportedError(
      fmt::format("to_json: types: expected classes with a row in the table of module forms "
                  "(register_module_form), got {}",
                  type.name()));
}

// Reading ----------------------------------------------------------------------------------------

[[noreturn]] void fail(const std::string& where, std::string_view expected, std::string_view got) {
  throw FileError(fmt::format("{}: expected {}, got {}", where, expected, got));
}

const Json::Object& object(const Json& value, const std::string& where) {
  if (value.as_object() == nullptr) fail(where, "an object", value.kind());
  return *value.as_object();
}

const Json& member(const Json& value, const char* name, const std::string& where) {
  const Json* found = value.find(name);
  if (found == nullptr) fail(where, fmt::format("a member '{}'", name), "none");
  return *found;
}

const std::string& text(const Json& value, const std::string& where) {
  if (value.as_string() == nullptr) fail(where, "text", value.kind());
  return *value.as_string();
}

std::int64_t whole(const Json& value, const std::string& where) {
  if (value.as_int() == nullptr) fail(where, "a whole number", value.kind());
  return *value.as_int();
}

void only_members(const Json& value, std::initializer_list<std::string_view> known,
                  const std::string& where) {
  for (const auto& [name, unused] : object(value, where)) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      fail(where, fmt::format("members {}", fmt::join(known, ", ")), fmt::format("'{}'", name));
    }
  }
}

// dtype and qscheme by torch's names, as settings read them.
struct Names {
  DType dtype = DType::QInt8;
  QScheme qscheme = QScheme::PerTensorSymmetric;
};
void describe(Names& names, SettingFields& fields) {
  fields("dtype", names.dtype);
  fields("qscheme", names.qscheme);
}

ObserverFactory given_from(const Json& entry, const std::string& where) {
  only_members(
      entry,
      {"kind", "scale", "zero_point", "dtype", "qscheme", "ch_axis", "quant_min", "quant_max"},
      where);
  const auto items = [&](const char* name) -> const Json::Array& {
    const Json& value = member(entry, name, where);
    if (value.as_array() == nullptr) fail(where + ": " + name, "a list", value.kind());
    return *value.as_array();
  };
  std::vector<float> scale;
  for (const Json& each : items("scale")) {
    if (!each.is_number()) fail(where + ": scale", "numbers", each.kind());
    scale.push_back(static_cast<float>(each.as_number()));
  }
  std::vector<std::int64_t> zero_point;
  for (const Json& each : items("zero_point")) {
    zero_point.push_back(whole(each, where + ": zero_point"));
  }
  const auto names = options_from<Names>(
      where, {{"dtype", text(member(entry, "dtype", where), where + ": dtype")},
              {"qscheme", text(member(entry, "qscheme", where), where + ": qscheme")}});
  return GivenQParamsObserver::with_args(
      {.qparams = {Tensor::from_span(scale), Tensor::from_int64(zero_point)},
       .dtype = names.dtype,
       .qscheme = names.qscheme,
       .ch_axis = whole(member(entry, "ch_axis", where), where + ": ch_axis"),
       .quant_min = whole(member(entry, "quant_min", where), where + ": quant_min"),
       .quant_max = whole(member(entry, "quant_max", where), where + ": quant_max")});
}

ObserverFactory factory_from(const Json& entry, const std::string& where, int depth = 0) {
  if (entry.is_null()) return {};
  const std::string kind = text(member(entry, "kind", where), where + ": kind");
  if (kind == kGiven) return given_from(entry, where);
  if (kind.ends_with("FakeQuantize")) {
    if (depth > 0) fail(where, "an observer within a fake quantizer", kind);
    only_members(entry, {"kind", "observer"}, where);
    const ObserverFactory inner =
        factory_from(member(entry, "observer", where), where + ": observer", depth + 1);
    if (!inner) fail(where + ": observer", "an observer", "null");
    if (kind == "FakeQuantize") return FakeQuantize::with_args(inner);
    if (kind == "FixedQParamsFakeQuantize") return FixedQParamsFakeQuantize::with_args(inner);
    if (kind == "FusedMovingAvgObsFakeQuantize") {
      return FusedMovingAvgObsFakeQuantize::with_args(inner);
    }
    fail(where, "FakeQuantize, FixedQParamsFakeQuantize or FusedMovingAvgObsFakeQuantize", kind);
  }
  only_members(entry, {"kind", "settings"}, where);
  const std::shared_ptr<Collector> made = detail::collector_from(entry, where);
  const auto observer = std::dynamic_pointer_cast<Observer>(made);
  if (observer == nullptr) fail(where, "an observer", made->name());
  // Later ones are copies of this one, which nobody shows anything.
  return {to_string(*observer), [observer] { return observer->clone(); }};
}

std::optional<QConfig> qconfig_from(const Json& entry, const std::string& where) {
  if (entry.is_null()) return std::nullopt;
  only_members(entry, {"activation", "weight"}, where);
  return QConfig{factory_from(member(entry, "activation", where), where + ": activation"),
                 factory_from(member(entry, "weight", where), where + ": weight")};
}

}  // namespace

std::string to_json(const QConfigMapping& mapping) {
  Json::Object file{{"format", kFormat}, {"version", kVersion}};
  if (mapping.global()) file.emplace_back("global", qconfig_json(mapping.global()));
  Json::Object types, names;
  Json::Array regexes;
  for (const auto& [type, qconfig] : mapping.by_type()) {
    types.emplace_back(type_name(type), qconfig_json(qconfig));
  }
  for (const auto& [path, qconfig] : mapping.by_name()) {
    names.emplace_back(path, qconfig_json(qconfig));
  }
  for (const auto& [pattern, qconfig] : mapping.by_regex()) {
    regexes.emplace_back(Json::Array{pattern, qconfig_json(qconfig)});
  }
  file.emplace_back("types", std::move(types));
  file.emplace_back("names", std::move(names));
  file.emplace_back("regexes", std::move(regexes));
  return detail::to_json_text(Json(std::move(file)));
}

QConfigMapping qconfig_mapping_from_json(std::string_view json, std::string_view where) {
  const std::string place(where);
  const Json file = detail::parse_json(json, place);
  only_members(file, {"format", "version", "global", "types", "names", "regexes"}, place);
  if (text(member(file, "format", place), place + ": format") != kFormat) {
    fail(place + ": format", kFormat, text(*file.find("format"), place));
  }
  if (const std::int64_t version = whole(member(file, "version", place), place + ": version");
      version != kVersion) {
    fail(place + ": version", std::to_string(kVersion), std::to_string(version));
  }
  QConfigMapping mapping;
  if (const Json* global = file.find("global")) {
    mapping.set_global(qconfig_from(*global, place + ": global"));
  }
  if (const Json* types = file.find("types")) {
    const std::string list = place + ": types";
    for (const auto& [name, entry] : object(*types, list)) {
      const nn::ModuleForm* row = nn::module_forms().find(name);
      const std::string at = list + ": " + name;
      if (row == nullptr) fail(at, "a name in the table of module forms", "an unknown one");
      mapping.set_object_type(row->type, qconfig_from(entry, at));
    }
  }
  if (const Json* names = file.find("names")) {
    const std::string list = place + ": names";
    for (const auto& [name, entry] : object(*names, list)) {
      mapping.set_module_name(name, qconfig_from(entry, list + ": " + name));
    }
  }
  if (const Json* regexes = file.find("regexes")) {
    const std::string list = place + ": regexes";
    if (regexes->as_array() == nullptr) fail(list, "a list", regexes->kind());
    for (const Json& pair : *regexes->as_array()) {
      const Json::Array* items = pair.as_array();
      if (items == nullptr || items->size() != 2) {
        fail(list, "pairs of a pattern and a QConfig", pair.kind());
      }
      const std::string& pattern = text((*items)[0], list);
      mapping.set_module_name_regex(pattern, qconfig_from((*items)[1], list + ": " + pattern));
    }
  }
  return mapping;
}

void save_qconfig_mapping(const QConfigMapping& mapping, const std::filesystem::path& path) {
  const std::string json = to_json(mapping) + "\n";
  write_file_atomically(path, [&](const auto& sink) { sink(std::as_bytes(std::span(json))); });
}

QConfigMapping load_qconfig_mapping(const std::filesystem::path& path) {
  return detail::reading(path.string() + ": load_qconfig_mapping", [&] {
    return qconfig_mapping_from_json(detail::read_text_file(path, "load_qconfig_mapping"),
                                     path.string());
  });
}

}  // namespace quanta
