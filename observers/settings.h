#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/runtime/dims.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/quantizer.h"

// Settings by name: how a collector says what it was made with, and how one is made from text, from
// a file or from a test case. These are plain values: threads may share what none of them changes.

namespace quanta {

/// What a setting can hold. std::monostate is Python's None; text is the name of a choice.
class Setting : public std::variant<std::monostate, bool, std::int64_t, double, DType, QScheme,
                                    Dims, std::string> {
 public:
  using variant::variant;

  Setting() = default;
  // Not the variant's own: that of libstdc++ 12 goes astray when memory is out on the way.
  Setting(const Setting& other);
  Setting(Setting&&) noexcept = default;
  Setting& operator=(Setting other) noexcept {
    swap(other);
    return *this;
  }
  ~Setting() = default;
};

/// As Python writes it: None, True, 2048, 0.01, torch.qint8, (2, 3), entropy.
std::string to_string(const Setting& setting);

/// Settings by name, in the order in which they were set.
class Settings {
 public:
  using Entry = std::pair<std::string, Setting>;

  Settings() = default;
  Settings(std::initializer_list<Entry> entries) : entries_(entries) {}

  bool empty() const noexcept { return entries_.empty(); }
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }
  /// Adds a setting at the end, or replaces it in place.
  void set(std::string name, Setting value);
  /// Null when there is no such name.
  const Setting* find(std::string_view name) const& noexcept;
  /// What it would point into ends with the statement.
  const Setting* find(std::string_view name) const&& = delete;

  bool operator==(const Settings&) const = default;

 private:
  std::vector<Entry> entries_;
};

/// A call as Python writes it, with the settings that `defaults` does not hold with the same value:
/// "HistogramObserver(reduce_range=True)".
std::string call_text(std::string_view name, const Settings& settings,
                      const Settings& defaults = {});

/// Lists the fields of an options struct by name, and sets those that it was given a value for. An
/// options struct has one function of this kind:
///
///   void describe(RecordingObserverOptions& options, SettingFields& fields) {
///     fields("dtype", options.dtype);
///   }
///
/// Names in texts, files and comparisons all follow from it.
class SettingFields {
 public:
  /// Only lists.
  SettingFields() = default;
  /// Also sets; `op` names the class in messages. `given` has to outlive this object.
  SettingFields(std::string_view op, const Settings& given) : op_(op), given_(&given) {}

  /// A field: bool, std::int64_t, double, DType, QScheme, Dims, std::optional<std::int64_t>, or a
  /// Setting, which takes any value. Whole numbers will do for doubles and for Dims of one number,
  /// torch's names for dtypes and schemes.
  /// Throws ArgumentError `op: name: ...` for a given value of another type.
  template <typename T>
  void operator()(std::string_view name, T& field) {
    if (const Setting* value = given(name)) read(name, *value, field);
    note(name, field);
  }
  /// A field without a default: it stands in every text.
  template <typename T>
  void required(std::string_view name, T& field) {
    (*this)(name, field);
    required_.emplace_back(name);
  }
  /// A field that texts show and that cannot be set by name.
  void shown(std::string_view name, std::string text) {
    seen_.set(std::string(name), std::move(text));
    required_.emplace_back(name);
  }
  /// An enum whose enumerators 0, 1, ... have these names.
  template <typename Enum, std::size_t kCount>
  void choice(std::string_view name, Enum& field,
              const std::array<std::string_view, kCount>& names) {
    std::string text(names[static_cast<std::size_t>(field)]);
    if (const Setting* value = given(name)) {
      read(name, *value, text);
      field = static_cast<Enum>(index_of(name, text, {names.begin(), names.end()}));
    }
    seen_.set(std::string(name), std::move(text));
  }

  /// The values of the fields.
  const Settings& settings() const noexcept { return seen_; }
  /// The same without the required ones, and the names of those.
  Settings defaults() const;
  const std::vector<std::string>& required_names() const noexcept { return required_; }
  /// Throws ArgumentError for a given name that no field has.
  void check_names() const;

 private:
  const Setting* given(std::string_view name) const {
    return given_ == nullptr ? nullptr : given_->find(name);
  }
  void read(std::string_view name, const Setting& value, bool& field) const;
  void read(std::string_view name, const Setting& value, std::int64_t& field) const;
  void read(std::string_view name, const Setting& value, double& field) const;
  void read(std::string_view name, const Setting& value, DType& field) const;
  void read(std::string_view name, const Setting& value, QScheme& field) const;
  void read(std::string_view name, const Setting& value, Dims& field) const;
  void read(std::string_view name, const Setting& value, std::string& field) const;
  void read(std::string_view name, const Setting& value, std::optional<std::int64_t>& field) const;
  void read(std::string_view name, const Setting& value, Setting& field) const;
  std::size_t index_of(std::string_view name, const std::string& text,
                       const std::vector<std::string_view>& names) const;

  template <typename T>
  void note(std::string_view name, const T& field) {
    seen_.set(std::string(name), Setting(field));
  }
  void note(std::string_view name, const std::optional<std::int64_t>& field) {
    seen_.set(std::string(name), field ? Setting(*field) : Setting());
  }

  std::string op_;
  const Settings* given_ = nullptr;
  Settings seen_;
  std::vector<std::string> required_;
};

/// The settings that `options` stand for.
template <typename Options>
Settings settings_of(Options options) {
  SettingFields fields;
  describe(options, fields);
  return fields.settings();
}

/// The fields of a default `Options`.
template <typename Options>
SettingFields default_fields() {
  Options options{};
  SettingFields fields;
  describe(options, fields);
  return fields;
}

/// The defaults of `Options` with the given settings in their place. Throws ArgumentError
/// `op: name: ...` for a name that is none or a value of another type.
template <typename Options>
Options options_from(std::string_view op, const Settings& given) {
  Options options{};
  SettingFields fields(op, given);
  describe(options, fields);
  fields.check_names();
  return options;
}

}  // namespace quanta
