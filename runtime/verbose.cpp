#include "quanta/runtime/verbose.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

bool initial_verbose() {
  const char* value = std::getenv("QUANTA_VERBOSE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

std::atomic<bool>& verbose_flag() {
  static std::atomic<bool> flag{initial_verbose()};
  return flag;
}

}  // namespace

void set_verbose(bool on) { verbose_flag().store(on, std::memory_order_relaxed); }
bool is_verbose() noexcept { return verbose_flag().load(std::memory_order_relaxed); }

OpScope::OpScope(std::string_view op) noexcept : op_(op), active_(is_verbose()) {
  if (active_) start_ = std::chrono::steady_clock::now();
}

OpScope::~OpScope() {
  if (!active_) return;
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start_;
  try {
    const std::string line =
        with_module_path(fmt::format("quanta: {} {} {:.1f} us", op_, kernel_, elapsed.count()));
    std::fprintf(stderr, "%s\n", line.c_str());
  } catch (...) {  // a line of the log is lost, nothing else
  }
}

}  // namespace quanta
