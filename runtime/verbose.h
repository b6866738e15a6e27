#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <type_traits>

#include "quanta/runtime/device.h"
#include "quanta/runtime/device_span.h"
#include "quanta/runtime/op_listener.h"

/// Lines about ops on stderr. Switching them on and off is for any thread, applies to all of them
/// and throws nothing.
namespace quanta {

/// Prints a line on stderr for every op: name, kernel chosen, microseconds. On a CUDA device the
/// microseconds are the device's, and the line comes once the device has done the op: with one of
/// the lines behind it, with synchronize(), or at the thread's end.
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

  /// The op asks the device for work from now on, and until device_ends(): its time is the
  /// device's. What cannot be timed has the time that asking took.
  void device_begins(Device device) noexcept {
    if (active_) [[unlikely]]
      begin_span(device);
  }
  void device_ends() noexcept {
    if (span_ != nullptr) [[unlikely]]
      end_span();
  }

  /// Says what there is to do: `work()` gives an OpWork and is only called for a listener.
  template <typename Work>
  void work(Work&& work) {
    if (active_) [[unlikely]]
      work_ = work();
  }

 private:
  void begin() noexcept;
  void end() noexcept;
  void begin_span(Device device) noexcept;
  void end_span() noexcept;
  void tell(std::chrono::steady_clock::duration elapsed, const OpWork& work) const;

  std::string_view op_;
  std::string_view kernel_ = "reference";
  bool active_ = false;
  int depth_ = 0;
  OpScope* outer_ = nullptr;
  OpWork work_;
  OpWork inner_work_;
  std::chrono::steady_clock::time_point start_;
  std::unique_ptr<DeviceSpan> span_;  // of what this op asked for, else of the ops within it
};

namespace detail {
/// Prints the calling thread's lines that wait for a device; waits for it.
void print_waiting_lines() noexcept;
}  // namespace detail

}  // namespace quanta
