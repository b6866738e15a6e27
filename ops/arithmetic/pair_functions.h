#pragma once

// Private: functions of two floats that codes stand for, for the CPU and CUDA kernels.

#include <string_view>

#include "quanta/runtime/host_device.h"

namespace quanta::arithmetic {

struct Divide {
  static constexpr std::string_view kName = "quantized::div";
  QUANTA_HOST_DEVICE static float value(float lhs, float rhs) { return lhs / rhs; }
};
struct Minimum {
  static constexpr std::string_view kName = "quantized::minimum";
  QUANTA_HOST_DEVICE static float value(float lhs, float rhs) { return rhs < lhs ? rhs : lhs; }
};
struct Maximum {
  static constexpr std::string_view kName = "quantized::maximum";
  QUANTA_HOST_DEVICE static float value(float lhs, float rhs) { return lhs < rhs ? rhs : lhs; }
};

}  // namespace quanta::arithmetic
