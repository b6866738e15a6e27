#pragma once

// Private: clip of one element, and who gets its gradient, for the CPU and CUDA kernels.

#include <cstdint>

#include "quanta/runtime/host_device.h"

namespace quanta::clipping {

enum class ClipStep : std::uint8_t { Value, InputGradient, LowGradient, HighGradient };

template <typename T>
QUANTA_HOST_DEVICE T clip_value(T x, T low, T high) {
  const T below = x > high ? high : x;
  return below < low ? low : below;
}

/// Whether the gradient of the result goes to the argument that the step names.
template <typename T>
QUANTA_HOST_DEVICE bool clip_passes(ClipStep step, T x, T low, T high) {
  if (step == ClipStep::LowGradient) return x <= low;
  if (step == ClipStep::HighGradient) return x >= high;
  return low < x && x < high;
}

}  // namespace quanta::clipping
