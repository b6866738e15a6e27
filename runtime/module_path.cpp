#include "quanta/runtime/module_path.h"

#include <atomic>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

std::atomic<ModulePathFunction> path_function{nullptr};

}  // namespace

void set_module_path_function(ModulePathFunction function) noexcept { path_function = function; }

std::string current_module_path() {
  const ModulePathFunction function = path_function.load();
  return function == nullptr ? std::string() : function();
}

std::string with_module_path(std::string message) {
  const std::string path = current_module_path();
  if (!path.empty()) message += fmt::format(" (in module '{}')", path);
  return message;
}

}  // namespace quanta
