#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quanta/runtime/tensor.h"

/// States by name. Plain values: threads may share what none of them changes.
namespace quanta {

/// Tensors by name in a fixed order: what a module saves and loads. Names are torch's
/// ("layer1.0.conv1.weight"); members of a tuple or list stored under one key are appended with a
/// slash ("fc._packed_params._packed_params/0" is the weight, "/1" the bias, absent when None).
class StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;

  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }

  /// Adds at the end, or replaces in place.
  void set(std::string name, Tensor tensor);
  /// Null when there is no such name.
  const Tensor* find(std::string_view name) const noexcept;
  bool contains(std::string_view name) const noexcept { return find(name) != nullptr; }
  /// Throws ArgumentError with the name when missing.
  const Tensor& at(std::string_view name) const;
  /// Removes the name if it is there; the order of the others stays.
  void erase(std::string_view name);

 private:
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const noexcept {
      return std::hash<std::string_view>{}(name);
    }
  };

  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t, NameHash, std::equal_to<>> positions_;
};

}  // namespace quanta
