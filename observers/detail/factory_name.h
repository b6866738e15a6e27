#pragma once

// Private: the names of observer factories, "HistogramObserver(reduce_range=True)".

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quanta/runtime/dtype.h"
#include "quanta/runtime/quantizer.h"

namespace quanta::detail {

/// A class's name with the arguments that differ from their defaults, as the call would be written
/// in Python.
class FactoryName {
 public:
  explicit FactoryName(std::string_view class_name) : class_name_(class_name) {}

  template <typename T>
  void add(std::string_view key, const T& value, const T& default_value) {
    if (!(value == default_value)) add_always(key, value);
  }

  template <typename T>
  void add_always(std::string_view key, const T& value) {
    if (!arguments_.empty()) arguments_ += ", ";
    arguments_ += fmt::format("{}={}", key, print(value));
  }

  /// Text that stands for itself: the name of another factory.
  void add_text(std::string_view key, std::string_view text) {
    if (!arguments_.empty()) arguments_ += ", ";
    arguments_ += fmt::format("{}={}", key, text);
  }

  /// The settings common to all observers of ranges.
  template <typename Options>
  void add_uniform(const Options& options, const Options& defaults) {
    add("dtype", options.dtype, defaults.dtype);
    add("qscheme", options.qscheme, defaults.qscheme);
    add("reduce_range", options.reduce_range, defaults.reduce_range);
    add("quant_min", options.quant_min, defaults.quant_min);
    add("quant_max", options.quant_max, defaults.quant_max);
    add("eps", options.eps, defaults.eps);
    add("is_dynamic", options.is_dynamic, defaults.is_dynamic);
  }

  std::string text() const { return class_name_ + "(" + arguments_ + ")"; }

 private:
  static std::string print(bool value) { return value ? "True" : "False"; }
  static std::string print(double value) { return fmt::format("{}", value); }
  static std::string print(std::int64_t value) { return fmt::format("{}", value); }
  static std::string print(DType value) { return fmt::format("torch.{}", torch_name(value)); }
  static std::string print(QScheme value) { return fmt::format("torch.{}", torch_name(value)); }
  static std::string print(const std::optional<std::int64_t>& value) {
    return value ? fmt::format("{}", *value) : "None";
  }

  std::string class_name_;
  std::string arguments_;
};

}  // namespace quanta::detail
