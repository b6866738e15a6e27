#pragma once

#include <memory>

#include "quanta/runtime/device.h"

namespace quanta {

namespace cuda {
class Event;
}  // namespace cuda

/// From when to when a CUDA device did what an op or a module asked for. The device may still be at
/// work; whoever asks for a time waits for it. A value whose copies may be read by many threads.
class DeviceSpan {
 public:
  /// Of nothing.
  DeviceSpan() = default;
  /// Begins when the device has done all that it was asked for so far. Throws BackendError.
  explicit DeviceSpan(Device device);
  /// Ends with what the device was asked for so far. Throws BackendError.
  void end();

  bool is_empty() const noexcept { return end_ == nullptr; }
  /// Whether nobody would wait. Throws BackendError, as do those that follow.
  bool has_passed() const;
  double microseconds() const;
  /// From this one's begin to that of another span of the same device.
  double microseconds_until(const DeviceSpan& later) const;
  /// Ends where `later` ends, which began later; a span of nothing becomes that one. A span of
  /// another device is left out.
  void extend(const DeviceSpan& later) noexcept;

 private:
  Device device_;
  std::shared_ptr<const cuda::Event> begin_, end_;
};

}  // namespace quanta
