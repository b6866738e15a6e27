#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "quanta/runtime/operation.h"

namespace quanta::test {

/// Runs the calling thread's operations on a CUDA device, while a GuideScope names it: arguments
/// are copied there and results back, so that code that knows nothing of devices is tested on one.
/// What has no kernel there or changes a tensor in place runs where it was. Gradients go back the
/// same way, over the copies: on the device.
class DeviceGuide final : public OpGuide {
 public:
  explicit DeviceGuide(Device device) : device_(device) {}

  bool guide(const Operation& operation, const Arguments& in, Results& out) override;

  /// Whether calls that gradients are asked of are guided, as they are at first, or left: where a
  /// way back has no kernel.
  enum class GradientCalls : std::uint8_t { Guided, Left };
  void set_gradient_calls(GradientCalls calls) noexcept { gradient_calls_ = calls; }

  /// Calls by name.
  const std::map<std::string, std::int64_t>& on_device() const noexcept { return on_device_; }
  const std::map<std::string, std::int64_t>& left() const noexcept { return left_; }
  /// Calls on the device since the last time that this was asked.
  std::int64_t take_count() noexcept;

 private:
  bool runs_on_device(const Operation& operation, const Arguments& in) const;

  Device device_;
  GradientCalls gradient_calls_ = GradientCalls::Guided;
  std::int64_t count_ = 0;
  std::map<std::string, std::int64_t> on_device_;
  std::map<std::string, std::int64_t> left_;
};

}  // namespace quanta::test
