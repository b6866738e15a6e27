#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/nn/module.h"
#include "suite.h"

namespace quanta::conform {

/// A positional input of a `module` case: x, x1, ...; a tuple has several tensors.
using ModuleInput = std::vector<Tensor>;

/// What forward of a `module` case gets. Tensors of keyword arguments and other attributes are
/// read from the case.
struct ModuleCall {
  const nn::Module& module;
  std::vector<ModuleInput> inputs;
  const Case& test;

  bool has(std::size_t input) const noexcept { return input < inputs.size(); }
  /// Throws FormatError when it is missing or a tuple.
  const Tensor& tensor(std::size_t input) const;
  /// Undefined when it is not given.
  Tensor optional_tensor(std::size_t input) const;
  /// The occupant of that type. Throws UnsupportedError for another.
  template <typename T>
  const T& as() const {
    if (const auto* typed = dynamic_cast<const T*>(&module)) return *typed;
    throw_other_type();
  }

 private:
  [[noreturn]] void throw_other_type() const;
};

/// Runs forward; the results in torch's order (out, out1, ...).
using ModuleForward = std::function<std::vector<Tensor>(const ModuleCall&)>;

/// Adds, by torch's class name, how modules that take or give more than one tensor are called, and
/// the attributes (keyword arguments) that this takes care of.
class ForwardRegistration {
 public:
  struct Entry {
    const char* type;
    ModuleForward forward;
    std::vector<std::string> attributes{};
  };
  ForwardRegistration(std::initializer_list<Entry> entries);
};

}  // namespace quanta::conform
