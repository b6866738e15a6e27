#pragma once

// Private: a number on a CUDA device that kernels raise when they meet what they cannot take.

#include <cstdint>

#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {

/// Kernels cannot throw: they raise this flag, and the host asks for it once, before anybody sees
/// the result.
class Fault {
 public:
  explicit Fault(Device device) : device_(device), flag_(device, sizeof(std::int32_t)) {
    driver(device).fill(flag_.as<void>(), 0, flag_.bytes());
  }
  std::int32_t* flag() const noexcept { return flag_.as<std::int32_t>(); }
  /// Waits for the device.
  bool is_raised() const {
    std::int32_t value = 0;
    driver(device_).copy_to_host(&value, flag_.as<void>(), sizeof(value));
    return value != 0;
  }

 private:
  Device device_;
  Buffer flag_;
};

}  // namespace quanta::cuda
