#pragma once

// Private: what the kernels of depthwise convolutions are given.

#include <cstdint>
#include <vector>

#include "quanta/ops/conv/cpu_depthwise.h"

namespace quanta::cpu {

/// An output line and the input lines under the kernel.
struct DepthwiseLine {
  std::int64_t image, depth, height;

  DepthwiseLine(const ConvShape& shape, std::int64_t index)
      : image(index / (shape.out[1] * shape.out[0])),
        depth(index / shape.out[1] % shape.out[0]),
        height(index % shape.out[1]) {}

  /// Row `row` of the kernel (kD * kH), null outside the input. With two lines at a time one row
  /// more than the kernel has is asked for.
  const std::uint8_t* input(const std::uint8_t* src, const ConvShape& shape,
                            std::int64_t row) const {
    const std::int64_t kernel_d = shape.kernel[0] == 1 ? 0 : row / shape.kernel[1];
    const std::int64_t kernel_h = row - kernel_d * shape.kernel[1];
    const std::int64_t d =
        depth * shape.stride[0] - shape.padding[0] + kernel_d * shape.dilation[0];
    const std::int64_t h =
        height * shape.stride[1] - shape.padding[1] + kernel_h * shape.dilation[1];
    if (d < 0 || d >= shape.in[0] || h < 0 || h >= shape.in[1]) return nullptr;
    const std::int64_t line = (image * shape.in[0] + d) * shape.in[1] + h;
    return src + line * shape.in[2] * shape.in_channels;
  }
};

/// An input line at the first channel of a vector; `step` bytes from column to column. What lies
/// outside the input is a vector of zero points with a step of 0.
struct InputLine {
  const std::uint8_t* data;
  std::int64_t step;
};

struct DepthwiseCall {
  const std::uint8_t* src;
  std::int32_t src_zero_point;
  const DepthwiseWeights& weights;
  const ConvShape& shape;
  const RequantizeParams& requantize;
  std::uint8_t* dst;
  // For each channel, in the order of DepthwiseWeights::sums.
  const std::int32_t* offset;  ///< what sums start from
  const float* bias;
  const float* multiplier;
};

struct WindowCall {
  const std::uint8_t* src;
  const DepthwiseWeights& weights;
  const DepthwiseEpilogue& epilogue;
  const ConvShape& shape;
  std::uint8_t* dst;
};
/// Whether the instruction set in use has depthwise_windows.
bool has_depthwise_windows();
/// Output lines [begin, end) with the weights' chunks (cpu_depthwise_window.cpp).
void depthwise_windows(const WindowCall& call, std::int64_t begin, std::int64_t end);

/// Memory of one thread, kept between calls.
struct DepthwiseScratch {
  std::vector<const std::uint8_t*> rows;  ///< input lines under the kernel; null: outside
  std::vector<InputLine> lines;           ///< the same for one vector of channels
  AlignedVector<std::uint8_t> interleaved;
  AlignedVector<std::uint8_t> tails;    ///< copies of lines that end with the input
  AlignedVector<std::uint8_t> padding;  ///< a vector of zero points
};

}  // namespace quanta::cpu
