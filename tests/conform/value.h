#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::conform {

class Value;

using List = std::vector<Value>;

/// Named values in their order.
struct Object {
  std::vector<std::pair<std::string, Value>> items;

  void set(std::string name, Value value);
  /// Null when there is no such name.
  const Value* find(std::string_view name) const;
};

/// An input or output of a case: a leaf (tensor, number, bool, string, null) or a list or object of
/// values. A quantized tensor is a Tensor with its parameters.
class Value {
 public:
  struct Null {};
  using Variant = std::variant<Null, bool, std::int64_t, double, std::string, Tensor, List, Object>;

  Value() = default;
  Value(Variant value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  template <typename T>
  requires(!std::is_same_v<T, Value> &&
           std::is_constructible_v<Variant, std::in_place_type_t<T>, T>)
      Value(T value)  // NOLINT(google-explicit-constructor)
      : value_(std::in_place_type<T>, std::move(value)) {}
  Value(QTensor value)  // NOLINT(google-explicit-constructor)
      : value_(std::in_place_type<Tensor>, std::move(value)) {}
  Value(const char* text) : value_(std::string(text)) {}  // NOLINT(google-explicit-constructor)

  const Variant& get() const noexcept { return value_; }
  template <typename T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&value_);
  }
  bool is_null() const noexcept { return std::holds_alternative<Null>(value_); }

 private:
  Variant value_;
};

/// What a case gives, by output name.
using Outputs = Object;

/// "Float32 tensor", "integer", "object", ...: for messages.
std::string kind_of(const Value& value);

}  // namespace quanta::conform
