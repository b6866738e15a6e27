#pragma once

#include <chrono>
#include <string_view>

#include "quanta/runtime/op_listener.h"

namespace quanta {

/// Prints a line on stderr for every op: name, shape, kernel chosen, microseconds.
/// Also switched on by the environment variable QUANTA_VERBOSE=1.
void set_verbose(bool on);
bool is_verbose() noexcept;

/// Used inside ops: names the op while it runs, tells the thread's OpListener and, when verbose,
/// prints the line at its end. Costs a look at one global number when nobody wants to know.
class OpScope {
 public:
  explicit OpScope(std::string_view op) noexcept : op_(op) {
    if (detail::ops_are_watched()) [[unlikely]]
      begin();
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
  /// The same for an op that reads and writes these tensors (undefined ones count nothing) and has
  /// nothing else to do that takes time. A view of an input counts as if it were a copy.
  template <typename... Tensors>
  void touches(const Tensors&... tensors) {
    if (active_) [[unlikely]]
      work_.bytes = (std::int64_t{0} + ... + byte_count(tensors));
  }
  /// The same for an op that maps each element of `x` to one of the same size.
  template <typename Tensor>
  void maps(const Tensor& x) {
    touches(x, x);
  }

 private:
  template <typename Tensor>
  static std::int64_t byte_count(const Tensor& x) {
    return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0;
  }
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
