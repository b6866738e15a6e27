#pragma once

// Settings by torch's names, as cases hold them, and what they are called with: parameters of
// functions and constructors by position, and structs of options.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "suite.h"

namespace quanta::conform {

/// torch's names for the values of an enumeration, in their order.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kTorchNames{};

/// Named settings. Notes which were asked for, so that one that nobody knows is not passed over in
/// silence.
class Arguments {
 public:
  explicit Arguments(const Json& json) : json_(&json) {}

  /// Gives `value` the setting of that name. It stays as it is where there is none, or null; an
  /// optional one is emptied by null. Throws FormatError for a setting of another type.
  template <typename T>
  void operator()(const char* name, T& value) const {
    const Json* given = find(name);
    if (given != nullptr) read(name, *given, value);
  }
  bool is_text(const char* name) const;
  /// Throws FormatError when there is none of that name.
  void require(const char* name) const;

  /// Throws UnsupportedError for a setting that was given but never asked for.
  void require_all_used(std::string_view type) const;

  template <typename T>
  static void read(std::string_view name, const Json& json, T& value) {
    if (json.is_null()) return;
    if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DType>) {
      value = static_cast<T>(position(name, json, kTorchNames<T>));
    } else {
      read_plain(name, json, value);
    }
  }
  template <typename T>
  static void read(std::string_view name, const Json& json, std::optional<T>& value) {
    if (json.is_null()) {
      value.reset();
    } else {
      read(name, json, value.emplace());
    }
  }

 private:
  const Json* find(const char* name) const;
  static std::size_t position(std::string_view name, const Json& json,
                              std::span<const std::string_view> names);
  static void read_plain(std::string_view name, const Json& json, bool& value);
  static void read_plain(std::string_view name, const Json& json, std::int64_t& value);
  static void read_plain(std::string_view name, const Json& json, double& value);
  static void read_plain(std::string_view name, const Json& json, std::string& value);
  static void read_plain(std::string_view name, const Json& json, Dims& value);
  static void read_plain(std::string_view name, const Json& json, DType& value);
  /// A number or a list of numbers.
  static void read_plain(std::string_view name, const Json& json, std::vector<double>& value);
  static void read_plain(std::string_view name, const Json& json, std::vector<std::int64_t>& value);

  const Json* json_;
  mutable std::set<std::string> used_;
};

/// A parameter of a function or a constructor: what cases call it, and what stands for one that is
/// not given. Null: it may be left out.
struct Parameter {
  Parameter(const char* name) : name(name) {}  // NOLINT(google-explicit-constructor)
  Parameter(const char* name, Json otherwise) : name(name), otherwise(std::move(otherwise)) {}

  const char* name;
  std::optional<Json> otherwise{};
};

/// The names of parameters, one after the other.
class Parameters {
 public:
  explicit Parameters(std::span<const Parameter> parameters) : rest_(parameters) {}
  /// Throws std::logic_error when there is none left: the row of a table is wrong.
  const Parameter& next();
  void require_all_used() const;

 private:
  std::span<const Parameter> rest_;
};

/// A struct of options, whose settings go by their own names: there is take(given, options).
template <typename T>
concept Options = requires(const Arguments& given, T& options) {
  take(given, options);
};

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// The next parameter, or options. Throws FormatError for one that is missing.
template <typename T>
T read_setting(const Arguments& given, Parameters& names) {
  T value{};
  if constexpr (Options<T>) {
    take(given, value);
  } else {
    const Parameter& parameter = names.next();
    if (parameter.otherwise) {
      Arguments::read(parameter.name, *parameter.otherwise, value);
    } else if (!is_optional<T>) {
      given.require(parameter.name);
    }
    given(parameter.name, value);
  }
  return value;
}

}  // namespace quanta::conform
