#pragma once

// Private: JSON for the headers of files. Strict on the way in (RFC 8259, no duplicate keys), exact
// on the way out: a number reads back as the same bits.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quanta::detail {

/// A JSON value. Objects keep the order of their keys. Numbers without fraction and exponent that
/// fit are integers, all others doubles.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  // Not the variant's own: that of libstdc++ 12 goes astray when memory is out on the way.
  Json(const Json& other);
  Json(Json&&) noexcept = default;
  Json& operator=(Json other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Json() = default;
  Json(std::nullptr_t) {}                                // NOLINT(google-explicit-constructor)
  Json(bool value) : value_(value) {}                    // NOLINT(google-explicit-constructor)
  Json(std::int64_t value) : value_(value) {}            // NOLINT(google-explicit-constructor)
  Json(int value) : value_(std::int64_t{value}) {}       // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                  // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Json(std::string_view value)
      : value_(std::string(value)) {}                      // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)

  bool is_null() const noexcept { return std::holds_alternative<std::nullptr_t>(value_); }
  /// Null unless the value is of that kind. as_number takes integers too.
  const bool* as_bool() const noexcept { return std::get_if<bool>(&value_); }
  const std::int64_t* as_int() const noexcept { return std::get_if<std::int64_t>(&value_); }
  const std::string* as_string() const noexcept { return std::get_if<std::string>(&value_); }
  const Array* as_array() const noexcept { return std::get_if<Array>(&value_); }
  const Object* as_object() const noexcept { return std::get_if<Object>(&value_); }
  bool is_number() const noexcept {
    return as_int() != nullptr || std::holds_alternative<double>(value_);
  }
  /// The number; 0 for anything else.
  double as_number() const noexcept;

  /// The member of an object; null when there is none or this is no object. Linear.
  const Json* find(std::string_view key) const noexcept;

  /// "an object", "a string", ...: for messages.
  std::string_view kind() const noexcept;

  bool operator==(const Json&) const = default;

 private:
  friend void write_json(const Json& value, std::string& text);
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> value_;
};

/// Bounds of what parse_json builds, so that a small text cannot take all memory or stack.
inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonValues = std::size_t{1} << 23;

/// The value that `text` holds, nothing but white space around it. Throws FileError
/// `<where>: byte <n>: expected ..., got ...` for all that is not JSON, for a key that stands twice
/// in an object, text that is not UTF-8, numbers beyond double, and beyond the bounds above.
Json parse_json(std::string_view text, std::string_view where);

/// Without white space. Doubles in the shortest form that reads back as the same number, always
/// with a point or an exponent. Throws ArgumentError for NaN, infinities and text that is not
/// UTF-8.
std::string to_json_text(const Json& value);
void write_json(const Json& value, std::string& text);

}  // namespace quanta::detail
