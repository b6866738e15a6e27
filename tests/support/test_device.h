#pragma once

#include <cstdlib>

#include "quanta/runtime/device.h"

namespace quanta::test {

/// The device that kernels are tested on: the emulated one, or what QUANTA_TEST_DEVICE names
/// ("cuda:0"; tools/gpu/first_run sets it). Tests of the emulation itself name that.
inline Device test_device() {
  const char* text = std::getenv("QUANTA_TEST_DEVICE");
  return text == nullptr || *text == '\0' ? Device::cuda_emulated() : Device::parse(text);
}

}  // namespace quanta::test
