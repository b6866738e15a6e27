#pragma once

#include <cstddef>
#include <cstdint>

#include "quanta/runtime/tensor.h"

// Private: quantization with a scale and zero point for each index along one axis.

namespace quanta::cpu {

/// A dense tensor's memory as [outer, channels, inner], whatever its order of dimensions.
struct ChannelLayout {
  ChannelLayout(const Tensor& dense, std::int64_t axis);

  std::size_t channel_of(std::int64_t element) const noexcept {
    return static_cast<std::size_t>(element / inner % channels);
  }

  std::int64_t outer = 0;
  std::int64_t channels = 0;
  std::int64_t inner = 1;
};

/// Both dense and of the same memory order; `out` is QUInt8, QInt8 or QInt32 with any per-channel
/// scheme.
void quantize_channels(const Tensor& x, const QTensor& out);
void dequantize_channels(const QTensor& x, float* dst);

}  // namespace quanta::cpu
