#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/nn/module.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

namespace detail {

/// A module given by value or by pointer, as a pointer.
template <typename M>
std::shared_ptr<Module> to_module_ptr(M&& module) {
  using Type = std::remove_cvref_t<M>;
  if constexpr (std::is_convertible_v<M, std::shared_ptr<Module>>) {
    return std::forward<M>(module);
  } else {
    static_assert(std::is_base_of_v<Module, Type>, "expected a module or a pointer to one");
    return make_module<Type>(std::forward<M>(module));
  }
}

}  // namespace detail

/// Modules one after the other, named "0", "1", ... or as given to add_module.
///
///   nn::Sequential features{nn::Conv2d({.in_channels = 3, .out_channels = 8, .kernel_size = {3}}),
///                           nn::ReLU()};
class Sequential : public Module {
 public:
  Sequential() = default;
  template <typename First, typename... Rest>
  requires(!std::derived_from<std::remove_cvref_t<First>, Sequential> ||
           sizeof...(Rest) > 0) explicit Sequential(First&& first, Rest&&... rest) {
    push_back(std::forward<First>(first));
    (push_back(std::forward<Rest>(rest)), ...);
  }

  /// Adds a module, by value or by shared_ptr, named by its position.
  template <typename M>
  Sequential& push_back(M&& module) {
    add_module(std::to_string(size()), detail::to_module_ptr(std::forward<M>(module)));
    return *this;
  }
  std::size_t size() const noexcept { return child_count(); }
  bool empty() const noexcept { return size() == 0; }
  /// Throws ArgumentError when there is no such position.
  Module& operator[](std::size_t index) const { return *ptr(index); }
  const std::shared_ptr<Module>& ptr(std::size_t index) const;

  /// Runs x through all modules in order.
  Tensor forward(const Tensor& x) const override;
};

/// Modules by position, for a forward that calls them itself:
///
///   Tensor y = x;
///   for (std::size_t i = 0; i < blocks->size(); ++i) y = (*blocks)[i](y);
///
/// Calling the list throws UnsupportedError.
class ModuleList : public Module {
 public:
  ModuleList() = default;

  /// Adds a module, by value or by shared_ptr, named by its position.
  template <typename M>
  ModuleList& push_back(M&& module) {
    add_module(std::to_string(size()), detail::to_module_ptr(std::forward<M>(module)));
    return *this;
  }
  std::size_t size() const noexcept { return child_count(); }
  bool empty() const noexcept { return size() == 0; }
  /// Throws ArgumentError when there is no such position.
  Module& operator[](std::size_t index) const { return *ptr(index); }
  const std::shared_ptr<Module>& ptr(std::size_t index) const;

  Tensor forward(const Tensor& x) const override;
};

/// Modules by name, in the order of insertion. Calling the dictionary throws UnsupportedError.
class ModuleDict : public Module {
 public:
  ModuleDict() = default;

  /// Adds a module, by value or by shared_ptr, or replaces the one of that name.
  template <typename M>
  ModuleDict& insert(const std::string& name, M&& module) {
    add_module(name, detail::to_module_ptr(std::forward<M>(module)));
    return *this;
  }
  std::size_t size() const noexcept { return child_count(); }
  bool contains(std::string_view name) const { return has_child(name); }
  std::vector<std::string> keys() const;
  /// Throws ArgumentError that lists the names when there is no such one.
  Module& operator[](std::string_view name) const { return *get_submodule(name); }

  Tensor forward(const Tensor& x) const override;
};

}  // namespace quanta::nn
