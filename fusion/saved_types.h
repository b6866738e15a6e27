#pragma once

// Private: the modules that save_model and load_model know, by name.

#include <memory>
#include <string>
#include <string_view>
#include <typeindex>

#include "quanta/nn/module.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::detail {

/// What a file holds of one module.
struct Saved {
  StateDict& state;
  std::string prefix;  ///< of its names in the state
  DType dtype;         ///< of its result

  const Tensor* find(std::string_view name) const { return state.find(prefix + std::string(name)); }
  /// Puts what a module made of a tensor in its place (undefined: leaves it), so that loading the
  /// state finds nothing to do.
  void taken(std::string_view name, const Tensor& tensor) const {
    if (tensor.defined()) state.set(prefix + std::string(name), tensor);
  }
};

/// How a saved type comes back: from the module that stands at its place in the float network. The
/// state is loaded afterwards; the common layers are made of their part of it right away.
struct SavedType {
  std::string_view name;
  std::type_index type;
  std::shared_ptr<nn::Module> (*restore)(const nn::Module& occupant, const Saved& saved);
  /// The modules below come back with it: the file holds their state, but no types.
  bool whole = false;
  /// Tells forms of one type apart; null: any module of the type.
  bool (*is_form)(const nn::Module& module) = nullptr;
};

/// Null for a type that has no name in files.
const SavedType* find_saved_type(const nn::Module& module);
const SavedType* find_saved_type(std::string_view name);

}  // namespace quanta::detail
