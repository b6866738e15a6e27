#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// Hearing of ops as they run. A listener belongs to the thread that made its scope. What a
/// listener throws is dropped, and nothing else here throws.
namespace quanta {

class DeviceSpan;

/// What an op had to do, for rates. 0 stands for unknown.
struct OpWork {
  std::int64_t multiply_adds = 0;  ///< a multiplication and an addition count as one
  std::int64_t bytes = 0;          ///< tensors that are read and written, each counted once
};

/// A call of an op that has ended. The texts live until op_ended returns.
struct OpEvent {
  std::string_view op;      ///< "quantized::conv2d_relu"
  std::string_view kernel;  ///< the one that was chosen
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::duration duration;
  int depth = 0;  ///< ops that were running on the thread when it started: 1 within another op
  OpWork work;    ///< its own report, or the sum of what the ops within it reported
  /// For an op that ran on a CUDA device: when (runtime/device_span.h). The device may still be at
  /// work, and `duration` is the time that asking it took. Else null. Lives until op_ended returns.
  const DeviceSpan* on_device = nullptr;
};

/// Hears of every op that the calling thread runs, and of the modules that run them, while a
/// ListenScope names it. Everything that it throws is dropped. See Profiler for one that records.
class OpListener {
 public:
  virtual ~OpListener() = default;
  virtual void op_ended(const OpEvent& event) = 0;
  /// `module` tells modules apart; `depth` modules were running when it started. Its path is
  /// current_module_path() in runtime/module_path.h during this call.
  virtual void module_started(const void* module, std::size_t depth);
  virtual void module_ended();
};

/// Makes a listener hear of the calling thread's ops while it lives. Of several the innermost
/// hears.
class ListenScope {
 public:
  explicit ListenScope(OpListener& listener) noexcept;
  ~ListenScope();
  ListenScope(const ListenScope&) = delete;
  ListenScope& operator=(const ListenScope&) = delete;

 private:
  OpListener* outer_;
};

namespace detail {

/// The number of listeners of all threads, and one more while ops print lines (set_verbose). Ops
/// and modules look at nothing else while it is 0.
extern std::atomic<int> op_watchers;
inline bool ops_are_watched() noexcept { return op_watchers.load(std::memory_order_relaxed) != 0; }

/// The calling thread's listener, or null.
OpListener* op_listener() noexcept;
void tell_module_started(const void* module, std::size_t depth) noexcept;
void tell_module_ended() noexcept;

}  // namespace detail
}  // namespace quanta
