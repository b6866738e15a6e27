#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "quanta/runtime/operation.h"

namespace quanta::test {

/// Runs the calling thread's operations on a CUDA device, while a GuideScope names it: arguments
/// are copied there and results back, so that code that knows nothing of devices is tested on one.
/// What has no kernel there, asks for gradients or changes a tensor in place runs where it was.
class DeviceGuide final : public OpGuide {
 public:
  explicit DeviceGuide(Device device) : device_(device) {}

  bool guide(const Operation& operation, const Arguments& in, Results& out) override;

  /// Calls by name.
  const std::map<std::string, std::int64_t>& on_device() const noexcept { return on_device_; }
  const std::map<std::string, std::int64_t>& left() const noexcept { return left_; }
  /// Calls on the device since the last time that this was asked.
  std::int64_t take_count() noexcept;

 private:
  Device device_;
  std::int64_t count_ = 0;
  std::map<std::string, std::int64_t> on_device_;
  std::map<std::string, std::int64_t> left_;
};

}  // namespace quanta::test
