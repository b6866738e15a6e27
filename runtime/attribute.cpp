#include "quanta/runtime/attribute.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

std::string quantizer_text(const Quantizer& quantizer) {
  if (is_per_channel(quantizer.scheme)) {
    return fmt::format("{} along axis {}", quantizer.scheme, quantizer.axis);
  }
  return fmt::format("scale {}, zero point {}", quantizer.scale, quantizer.zero_point);
}

}  // namespace

std::string to_string(const Attribute& attribute) {
  return std::visit(
      Overloaded{[](std::monostate) -> std::string { return "none"; },
                 [](bool value) -> std::string { return value ? "true" : "false"; },
                 [](std::int64_t value) { return fmt::format("{}", value); },
                 [](double value) { return fmt::format("{}", value); },
                 [](const std::string& value) { return value; },
                 [](const Dims& value) { return to_string(value); },
                 [](DType value) { return std::string(to_string(value)); },
                 [](const std::vector<std::int64_t>& value) { return fmt::format("{}", value); },
                 [](const std::vector<double>& value) { return fmt::format("{}", value); },
                 [](const Tensor& value) -> std::string {
                   if (!value.defined()) return "none";
                   return fmt::format("{} {}", value.dtype(), value.sizes());
                 },
                 [](const Quantizer& value) { return quantizer_text(value); },
                 [](const OpaqueAttribute& value) -> std::string {
                   return value == nullptr ? "none" : "...";
                 }},
      attribute);
}

bool same_attribute(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  if (const auto* tensor = std::get_if<Tensor>(&a)) return tensor->is_same(std::get<Tensor>(b));
  if (const auto* number = std::get_if<double>(&a)) {
    const double other = std::get<double>(b);
    return *number == other || (std::isnan(*number) && std::isnan(other));
  }
  return std::visit(
      [&]<typename T>(const T& value) {
        if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, double>) {
          return false;  // compared above
        } else {
          return value == std::get<T>(b);
        }
      },
      a);
}

std::span<const std::string_view> enumerators(MemoryFormat) {
  static constexpr std::array<std::string_view, 3> kNames{"contiguous", "channels_last",
                                                          "preserve"};
  return kNames;
}

namespace detail {

void throw_attribute_type(std::string_view name, std::string_view expected,
                          const Attribute& value) {
  throw ArgumentError(with_module_path(
      fmt::format("attribute: {}: expected {}, got {}", name, expected, to_string(value))));
}

std::size_t enumerator_position(std::string_view name, std::span<const std::string_view> names,
                                const Attribute& value) {
  const auto* text = std::get_if<std::string>(&value);
  const auto found = text == nullptr ? names.end() : std::find(names.begin(), names.end(), *text);
  if (found == names.end()) {
    throw_attribute_type(name, fmt::format("one of {}", fmt::join(names, ", ")), value);
  }
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace detail
}  // namespace quanta
