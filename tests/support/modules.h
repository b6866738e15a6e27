#pragma once

// What tests ask of modules and their states.

#include <string>
#include <typeinfo>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::test {

/// Whether the module at `path` is a T, and no class that derives from it.
template <typename T>
bool is(const nn::Module& model, const std::string& path) {
  const nn::Module& module = *model.get_submodule(path);
  return typeid(module) == typeid(T);
}

std::vector<std::string> names(const StateDict& state);
std::vector<std::string> parameter_names(const nn::Module& module);

}  // namespace quanta::test
