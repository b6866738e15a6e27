#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/runtime/tensor.h"

/// The settings of an operation by name: what a printed plan, a graph file, an equality test and a
/// tool read and write without knowing the operation.
///
/// Reading throws nothing; writing throws ArgumentError for values that do not fit. Operations that
/// threads share are not written to.
namespace quanta {

class Operation;

/// A setting that is an object of its own, such as packed weights or a lookup table. Two are equal
/// when they are the same object.
using OpaqueAttribute = std::shared_ptr<const void>;

/// One setting. std::monostate stands for an optional setting that is left out; enumerators are
/// their names, "ReLU".
using Attribute = std::variant<std::monostate, bool, std::int64_t, double, std::string, Dims, DType,
                               std::vector<std::int64_t>, std::vector<double>, Tensor, Quantizer,
                               OpaqueAttribute>;

/// "3", "0.5", "[1, 1]", "Float32 [8, 3]" for a tensor, "none", "..." for an object.
std::string to_string(const Attribute& attribute);

/// Whether both hold the same setting: numbers by value (NaN equals NaN), tensors and objects by
/// identity.
bool same_attribute(const Attribute& a, const Attribute& b);

/// A setting of one kind of operation: its name, and how it is read and written.
struct AttributeInfo {
  std::string_view name;
  Attribute (*get)(const Operation& operation);
  /// Throws ArgumentError for a value of another type. Null where the setting follows from others.
  void (*set)(Operation& operation, const Attribute& value);
};

/// "contiguous", "channels_last", "preserve".
std::span<const std::string_view> enumerators(MemoryFormat format);

namespace detail {

/// Throws ArgumentError: `name: expected ..., got` another type.
[[noreturn]] void throw_attribute_type(std::string_view name, std::string_view expected,
                                       const Attribute& value);
/// Throws ArgumentError unless `text` is one of `names`; gives its position.
std::size_t enumerator_position(std::string_view name, std::span<const std::string_view> names,
                                const Attribute& value);

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsSharedPtr : std::false_type {};
template <typename T>
struct IsSharedPtr<std::shared_ptr<T>> : std::true_type {};

template <typename T>
Attribute to_attribute(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return value ? to_attribute(*value) : Attribute();
  } else if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DType>) {
    return std::string(enumerators(value)[static_cast<std::size_t>(value)]);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_base_of_v<Tensor, T>) {
    return static_cast<const Tensor&>(value);
  } else if constexpr (IsSharedPtr<T>::value) {
    return OpaqueAttribute(value);
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return std::string(value);
  } else {
    return value;
  }
}

template <typename T>
void from_attribute(std::string_view name, const Attribute& value, T& into) {
  if constexpr (IsOptional<T>::value) {
    if (std::holds_alternative<std::monostate>(value)) {
      into.reset();
      return;
    }
    typename T::value_type inner{};
    from_attribute(name, value, inner);
    into = std::move(inner);
  } else if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DType>) {
    into = static_cast<T>(enumerator_position(name, enumerators(T{}), value));
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!std::holds_alternative<bool>(value)) throw_attribute_type(name, "true or false", value);
    into = std::get<bool>(value);
  } else if constexpr (std::is_integral_v<T>) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (number == nullptr || !std::in_range<T>(*number)) {
      throw_attribute_type(name, "an integer", value);
    }
    into = static_cast<T>(*number);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      into = static_cast<T>(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      into = static_cast<T>(*number);
    } else {
      throw_attribute_type(name, "a number", value);
    }
  } else if constexpr (std::is_base_of_v<Tensor, T>) {
    if (!std::holds_alternative<Tensor>(value)) throw_attribute_type(name, "a tensor", value);
    const Tensor& tensor = std::get<Tensor>(value);
    if constexpr (std::is_same_v<T, Tensor>) {
      into = tensor;
    } else {
      into = tensor.defined() ? T(tensor) : T();
    }
  } else {
    if (!std::holds_alternative<T>(value)) throw_attribute_type(name, "another type", value);
    into = std::get<T>(value);
  }
}

}  // namespace detail

/// The table row of a member of operation `Op`, or of a member of its options:
///
///   attribute<LeakyReLU, &LeakyReLU::negative_slope>("negative_slope")
///   attribute<Conv, &Conv::options, &ConvOptions::stride>("stride")
///
/// An enumeration says the names of its values in order, in its own namespace:
///   std::span<const std::string_view> enumerators(Rounding);
template <typename Op, auto... members>
constexpr AttributeInfo attribute(std::string_view name) {
  return {name,
          [](const Operation& operation) -> Attribute {
            return detail::to_attribute((static_cast<const Op&>(operation).*....*members));
          },
          [](Operation& operation, const Attribute& value) {
            detail::from_attribute("attribute", value, (static_cast<Op&>(operation).*....*members));
          }};
}

/// The row of a setting that only follows from others (the weight within packed parameters), or
/// that is kept as an object: it can be read, not written.
template <typename Op, auto function>
constexpr AttributeInfo read_only_attribute(std::string_view name) {
  return {name,
          [](const Operation& operation) -> Attribute {
            return detail::to_attribute(function(static_cast<const Op&>(operation)));
          },
          nullptr};
}

}  // namespace quanta
