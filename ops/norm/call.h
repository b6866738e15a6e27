#pragma once

// Private: what a normalization is asked to do, on every device.

#include <cstdint>

#include "quanta/runtime/dtype.h"
#include "quanta/runtime/tensor.h"

namespace quanta::norm {

/// How a value of the map becomes a code: math::quantize with these numbers.
struct NormOutput {
  float inv_scale = 1.0F;
  std::int32_t zero_point = 0;
  std::int32_t min = 0;  ///< lowest code; the zero point where relu follows
  std::int32_t max = 255;
};

/// Batch, channels, everything behind them. Everything is dense.
struct NormGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t volume = 1;
  bool channels_last = false;

  NormGeometry() = default;
  NormGeometry(const Tensor& x, MemoryFormat format);
};

/// x [samples, channels, volume]: each of `groups` groups of channels of a sample has its
/// statistics, each channel its weight. A layer norm has one group and a volume of 1.
struct GroupShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t volume = 1;
  std::int64_t groups = 1;

  std::int64_t members() const noexcept { return channels / groups; }
  std::int64_t count() const noexcept { return members() * volume; }
};

/// What goes in and out: Float32, or codes. Memory of one device.
struct NormCall {
  DType dtype;
  const void* src;
  const float* weight;  ///< of each channel
  const float* bias;
  void* dst;
  NormOutput output;
};

}  // namespace quanta::norm
