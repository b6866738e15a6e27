#include "quanta/runtime/module_path.h"

#include <atomic>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/path_override.h"

namespace quanta {
namespace {

std::atomic<ModulePathFunction> path_function{nullptr};
thread_local constinit std::string_view overriding_path;

}  // namespace

void set_module_path_function(ModulePathFunction function) noexcept { path_function = function; }

PathOverride::PathOverride(std::string_view path) noexcept : outer_(overriding_path) {
  overriding_path = path;
}
PathOverride::~PathOverride() { overriding_path = outer_; }

std::string current_module_path() {
  if (!overriding_path.empty()) return std::string(overriding_path);
  const ModulePathFunction function = path_function.load();
  return function == nullptr ? std::string() : function();
}

std::string with_module_path(std::string message) {
  const std::string path = current_module_path();
  if (!path.empty()) message += fmt::format(" (in module '{}')", path);
  return message;
}

}  // namespace quanta
