#pragma once

#include <chrono>
#include <string_view>

namespace quanta {

/// Prints a line on stderr for every op: name, shape, kernel chosen, microseconds.
/// Also switched on by the environment variable QUANTA_VERBOSE=1.
void set_verbose(bool on);
bool is_verbose() noexcept;

/// Used inside ops: names the op while it runs and, when verbose, prints the line at its end.
class OpScope {
 public:
  explicit OpScope(std::string_view op) noexcept;
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  /// The kernel that was chosen; must outlive the scope (a literal, or oneDNN's own string).
  void kernel(std::string_view name) noexcept { kernel_ = name; }
  bool active() const noexcept { return active_; }

 private:
  std::string_view op_;
  std::string_view kernel_ = "reference";
  std::chrono::steady_clock::time_point start_;
  bool active_ = false;
};

}  // namespace quanta
