#include "quanta/observers/settings.h"

#include <algorithm>
#include <limits>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// Writes one kind of value. Numbers are the shortest text that gives them again.
struct Text {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(DType value) const { return fmt::format("torch.{}", torch_name(value)); }
  std::string operator()(QScheme value) const { return fmt::format("torch.{}", torch_name(value)); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const Dims& value) const {
    return fmt::format("({}{})", fmt::join(value, ", "), value.size() == 1 ? "," : "");
  }
};

}  // namespace

// Empty first, and then one of the alternatives, which is whole before it is taken in.
Setting::Setting(const Setting& other) : Setting() {
  std::visit([this](const auto& value) { *this = Setting(value); }, other);
}

std::string to_string(const Setting& setting) { return std::visit(Text{}, setting); }

void Settings::set(std::string name, Setting value) {
  for (Entry& entry : entries_) {
    if (entry.first != name) continue;
    entry.second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(name), std::move(value));
}

const Setting* Settings::find(std::string_view name) const& noexcept {
  for (const Entry& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

std::string call_text(std::string_view name, const Settings& settings, const Settings& defaults) {
  std::string arguments;
  for (const auto& [key, value] : settings) {
    const Setting* usual = defaults.find(key);
    if (usual != nullptr && *usual == value) continue;
    arguments += fmt::format("{}{}={}", arguments.empty() ? "" : ", ", key, to_string(value));
  }
  return fmt::format("{}({})", name, arguments);
}

Settings SettingFields::defaults() const {
  Settings result;
  for (const auto& [name, value] : seen_) {
    if (std::find(required_.begin(), required_.end(), name) == required_.end()) {
      result.set(name, value);
    }
  }
  return result;
}

void SettingFields::check_names() const {
  if (given_ == nullptr) return;
  for (const auto& [name, value] : *given_) {
    if (seen_.find(name) != nullptr) continue;
    std::vector<std::string> known;
    for (const auto& [each, ignored] : seen_) known.push_back(each);
    throw ArgumentError(with_module_path(fmt::format(
        "{}: settings: expected names out of {}, got {}", op_, fmt::join(known, ", "), name)));
  }
}

// Fields -----------------------------------------------------------------------------------------

void SettingFields::read(std::string_view name, const Setting& value, bool& field) const {
  const auto* given = std::get_if<bool>(&value);
  QUANTA_CHECK(given != nullptr, "{}: {}: expected True or False, got {}", op_, name,
               to_string(value));
  field = *given;
}

void SettingFields::read(std::string_view name, const Setting& value, std::int64_t& field) const {
  const auto* given = std::get_if<std::int64_t>(&value);
  QUANTA_CHECK(given != nullptr, "{}: {}: expected a whole number, got {}", op_, name,
               to_string(value));
  field = *given;
}

void SettingFields::read(std::string_view name, const Setting& value, double& field) const {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    field = static_cast<double>(*whole);
    return;
  }
  const auto* text = std::get_if<std::string>(&value);
  if (text != nullptr && *text == "inf") {
    field = std::numeric_limits<double>::infinity();
    return;
  }
  const auto* given = std::get_if<double>(&value);
  QUANTA_CHECK(given != nullptr, "{}: {}: expected a number, got {}", op_, name, to_string(value));
  field = *given;
}

void SettingFields::read(std::string_view name, const Setting& value, DType& field) const {
  std::optional<DType> dtype;
  if (const auto* given = std::get_if<DType>(&value)) dtype = *given;
  if (const auto* text = std::get_if<std::string>(&value)) {
    dtype = dtype_from_torch_name(*text);
  }
  QUANTA_CHECK(dtype.has_value(), "{}: {}: expected a dtype, got {}", op_, name, to_string(value));
  field = *dtype;
}

void SettingFields::read(std::string_view name, const Setting& value, QScheme& field) const {
  if (const auto* given = std::get_if<QScheme>(&value)) {
    field = *given;
    return;
  }
  const auto* text = std::get_if<std::string>(&value);
  QUANTA_CHECK(text != nullptr, "{}: {}: expected a scheme, got {}", op_, name, to_string(value));
  constexpr std::string_view kModule = "torch.";
  const std::string_view scheme = *text;
  field =
      qscheme_from_torch_name(scheme.starts_with(kModule) ? scheme.substr(kModule.size()) : scheme);
}

void SettingFields::read(std::string_view name, const Setting& value, Dims& field) const {
  if (const auto* one = std::get_if<std::int64_t>(&value)) {
    field = {*one};
    return;
  }
  const auto* given = std::get_if<Dims>(&value);
  QUANTA_CHECK(given != nullptr, "{}: {}: expected a tuple of whole numbers, got {}", op_, name,
               to_string(value));
  field = *given;
}

void SettingFields::read(std::string_view name, const Setting& value, std::string& field) const {
  const auto* given = std::get_if<std::string>(&value);
  QUANTA_CHECK(given != nullptr, "{}: {}: expected a name, got {}", op_, name, to_string(value));
  field = *given;
}

void SettingFields::read(std::string_view name, const Setting& value,
                         std::optional<std::int64_t>& field) const {
  if (std::holds_alternative<std::monostate>(value)) {
    field = std::nullopt;
    return;
  }
  std::int64_t number = 0;
  read(name, value, number);
  field = number;
}

void SettingFields::read(std::string_view /*name*/, const Setting& value, Setting& field) const {
  field = value;
}

std::size_t SettingFields::index_of(std::string_view name, const std::string& text,
                                    const std::vector<std::string_view>& names) const {
  const auto found = std::find(names.begin(), names.end(), text);
  QUANTA_CHECK(found != names.end(), "{}: {}: expected one of {}, got {}", op_, name,
               fmt::join(names, ", "), text);
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace quanta
