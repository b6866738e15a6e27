#pragma once

#include <chrono>
#include <string_view>
#include <type_traits>

#include "quanta/runtime/op_listener.h"

/// Lines about ops on stderr. Switching them on and off is for any thread, applies to all of them
/// and throws nothing.
namespace quanta {

/// Prints a line on stderr for every op: name, shape, kernel chosen, microseconds.
/// Also switched on by the environment variable QUANTA_VERBOSE=1.
void set_verbose(bool on);
bool is_verbose() noexcept;

/// Used by run() and plans: names the op while it runs, tells the thread's OpListener and, when
/// verbose, prints the line at its end. Costs a look at one global number when nobody wants to
/// know.
class OpScope {
 public:
  explicit OpScope(std::string_view op) noexcept : op_(op) {
    if (detail::ops_are_watched()) [[unlikely]]
      begin();
  }
  /// `name()` gives the op's name and is only called for a listener.
  template <typename Name>
  requires std::is_invocable_r_v<std::string_view, Name>
  explicit OpScope(const Name& name) noexcept {
    if (detail::ops_are_watched()) [[unlikely]] {
      op_ = name();
      begin();
    }
  }
  ~OpScope() {
    if (active_) [[unlikely]]
      end();
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  /// The kernel that was chosen; must outlive the scope (a literal, or oneDNN's own string).
  void kernel(std::string_view name) noexcept { kernel_ = name; }
  bool active() const noexcept { return active_; }

  /// Says what there is to do: `work()` gives an OpWork and is only called for a listener.
  template <typename Work>
  void work(Work&& work) {
    if (active_) [[unlikely]]
      work_ = work();
  }

 private:
  void begin() noexcept;
  void end() noexcept;

  std::string_view op_;
  std::string_view kernel_ = "reference";
  bool active_ = false;
  int depth_ = 0;
  OpScope* outer_ = nullptr;
  OpWork work_;
  OpWork inner_work_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace quanta
