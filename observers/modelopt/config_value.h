#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quanta::modelopt {

/// What a field of a quantizer's description can hold, as Python and YAML have it: nothing, a bool,
/// a number, text, a tuple or list, or a dictionary whose order is kept. Nothing here throws;
/// threads may share values that none of them changes.
class ConfigValue {
 public:
  struct Null {
    bool operator==(const Null&) const = default;
  };
  struct Sequence {
    std::vector<ConfigValue> items;
    bool is_tuple = false;
  };
  struct Dict {
    std::vector<std::pair<ConfigValue, ConfigValue>> items;
    /// Null when there is no such text key.
    const ConfigValue* find(std::string_view key) const;
    void set(std::string key, ConfigValue value);
  };
  using Variant = std::variant<Null, bool, std::int64_t, double, std::string, Sequence, Dict>;

  // Not inline: gcc warns of what it takes for uninitialised members of the variant otherwise.
  ConfigValue();
  ConfigValue(const ConfigValue&);
  ConfigValue(ConfigValue&&) noexcept;
  ConfigValue& operator=(const ConfigValue&);
  ConfigValue& operator=(ConfigValue&&) noexcept;
  ~ConfigValue();
  // NOLINTBEGIN(google-explicit-constructor): so that dictionaries can be written down.
  ConfigValue(bool value) : value_(value) {}
  ConfigValue(int value) : value_(std::int64_t{value}) {}
  ConfigValue(std::int64_t value) : value_(value) {}
  ConfigValue(double value) : value_(value) {}
  ConfigValue(const char* value) : value_(std::string(value)) {}
  ConfigValue(std::string value) : value_(std::move(value)) {}
  ConfigValue(Sequence value) : value_(std::move(value)) {}
  ConfigValue(Dict value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)
  static ConfigValue tuple(std::vector<ConfigValue> items);
  static ConfigValue list(std::vector<ConfigValue> items);
  static ConfigValue dict(std::initializer_list<std::pair<ConfigValue, ConfigValue>> items);

  const Variant& get() const noexcept { return value_; }
  template <typename T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&value_);
  }
  bool is_null() const noexcept { return std::holds_alternative<Null>(value_); }

  bool operator==(const ConfigValue& other) const;

 private:
  Variant value_;
};

/// As Python writes it: None, True, 2.5, 'text', (0,), [1, 2], {-1: 16, 'type': 'dynamic'}.
std::string to_string(const ConfigValue& value);
/// The shortest text that gives the number again, with a point or an exponent: 6.0, 1e-05.
std::string float_text(double value);

}  // namespace quanta::modelopt
