#pragma once

// Private: the sizes of a convolution, as all kernels for convolutions take them.

#include <cstdint>

namespace quanta::cpu {

/// Sizes of a convolution seen as 3-d (1d and 2d have leading ones). Channels-last everywhere:
/// src [N, D, H, W, C], dst [N, OD, OH, OW, O], dense.
struct ConvShape {
  std::int64_t batch = 1;
  std::int64_t in_channels = 0, out_channels = 0, groups = 1;
  std::int64_t in[3] = {1, 1, 1};
  std::int64_t out[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t padding[3] = {0, 0, 0};
  std::int64_t dilation[3] = {1, 1, 1};
  bool transposed = false;
  bool operator==(const ConvShape&) const = default;
};

/// How many pixels the results of all images have together.
inline std::int64_t pixels(const ConvShape& shape) {
  return shape.batch * shape.out[0] * shape.out[1] * shape.out[2];
}

}  // namespace quanta::cpu
