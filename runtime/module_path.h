#pragma once

#include <string>

/// Which module a thread runs. Setting the function and asking are safe from many threads at once,
/// and throw nothing.
namespace quanta {

/// While a thread runs a module's forward, errors and verbose lines name the module. nn::Module
/// installs the function that knows the current path; it returns "" outside any module.
using ModulePathFunction = std::string (*)();
void set_module_path_function(ModulePathFunction function) noexcept;

/// The path of the module that the calling thread runs, or "".
std::string current_module_path();

}  // namespace quanta
