#include "quanta/observers/modelopt/config_value.h"

#include <cmath>

#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      result += c;
    }
  }
  return result + "'";
}

std::string joined(const std::vector<ConfigValue>& items) {
  std::string result;
  for (const ConfigValue& item : items) {
    if (!result.empty()) result += ", ";
    result += to_string(item);
  }
  return result;
}

std::string joined(const ConfigValue::Dict& dict) {
  std::string result;
  for (const auto& [key, value] : dict.items) {
    if (!result.empty()) result += ", ";
    result += to_string(key) + ": " + to_string(value);
  }
  return result;
}

}  // namespace

ConfigValue::ConfigValue() = default;
ConfigValue::ConfigValue(const ConfigValue&) = default;
ConfigValue::ConfigValue(ConfigValue&&) noexcept = default;
ConfigValue& ConfigValue::operator=(const ConfigValue&) = default;
ConfigValue& ConfigValue::operator=(ConfigValue&&) noexcept = default;
ConfigValue::~ConfigValue() = default;

const ConfigValue* ConfigValue::Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    const auto* text = name.get_if<std::string>();
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

void ConfigValue::Dict::set(std::string key, ConfigValue value) {
  items.emplace_back(ConfigValue(std::move(key)), std::move(value));
}

ConfigValue ConfigValue::tuple(std::vector<ConfigValue> items) {
  return Sequence{std::move(items), true};
}

ConfigValue ConfigValue::list(std::vector<ConfigValue> items) {
  return Sequence{std::move(items), false};
}

ConfigValue ConfigValue::dict(std::initializer_list<std::pair<ConfigValue, ConfigValue>> items) {
  Dict dict;
  dict.items = items;
  return dict;
}

bool ConfigValue::operator==(const ConfigValue& other) const {
  if (value_.index() != other.value_.index()) return false;
  if (const auto* sequence = get_if<Sequence>()) {
    const auto* others = other.get_if<Sequence>();
    return sequence->is_tuple == others->is_tuple && sequence->items == others->items;
  }
  if (const auto* dict = get_if<Dict>()) return dict->items == other.get_if<Dict>()->items;
  if (const auto* text = get_if<std::string>()) return *text == *other.get_if<std::string>();
  if (const auto* flag = get_if<bool>()) return *flag == *other.get_if<bool>();
  if (const auto* whole = get_if<std::int64_t>()) return *whole == *other.get_if<std::int64_t>();
  if (const auto* real = get_if<double>()) return *real == *other.get_if<double>();
  return true;
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_string(const ConfigValue& value) {
  struct Visitor {
    std::string operator()(ConfigValue::Null) const { return "None"; }
    std::string operator()(bool flag) const { return flag ? "True" : "False"; }
    std::string operator()(std::int64_t whole) const { return fmt::format("{}", whole); }
    std::string operator()(double real) const { return float_text(real); }
    std::string operator()(const std::string& text) const { return quoted(text); }
    std::string operator()(const ConfigValue::Sequence& sequence) const {
      const std::string inside = joined(sequence.items);
      if (!sequence.is_tuple) return "[" + inside + "]";
      return "(" + inside + (sequence.items.size() == 1 ? ",)" : ")");
    }
    std::string operator()(const ConfigValue::Dict& dict) const { return "{" + joined(dict) + "}"; }
  };
  return std::visit(Visitor{}, value.get());
}

}  // namespace quanta::modelopt
