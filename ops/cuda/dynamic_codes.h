#pragma once

// Private: the codes of a dynamic layer's input on a CUDA device, which chooses scale and zero point
// itself: nobody waits for it.

#include <cstdint>

#include "quanta/ops/cuda/range.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {

/// How codes were chosen, on the device. A range that is not finite has the scale NaN.
struct DynamicNumbers {
  float scale = 1.0F;
  std::uint8_t zero_point = 0;
};

struct QuantizeDynamicParams {
  std::int64_t count = 0;  // > 0
  const float* floats = nullptr;
  const RangeOfFloats* range = nullptr;  // of these, on the device
  bool reduce_range = false;
  std::uint8_t* codes = nullptr;
  DynamicNumbers* numbers = nullptr;
};
/// math::choose_qparams for codes 0..255, and then math::quantize.
QUANTA_CUDA_ENTRY(quantize_dynamic, QuantizeDynamicParams)

class DynamicCodes {
 public:
  /// Of `count` > 0 floats on the device.
  DynamicCodes(Device device, const float* floats, std::int64_t count, bool reduce_range);

  const void* codes() const noexcept { return codes_.as<void>(); }
  const float* scale() const noexcept { return &numbers_.as<DynamicNumbers>()->scale; }
  const std::uint8_t* zero_point() const noexcept {
    return &numbers_.as<DynamicNumbers>()->zero_point;
  }

 private:
  Buffer codes_, numbers_;
};

}  // namespace quanta::cuda
