#pragma once

// Private: what the kernels of depthwise convolutions are given.

#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/conv_exact.h"

namespace quanta::cpu {

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

/// Memory of one thread, kept between calls.
struct DepthwiseScratch {
  std::vector<const std::uint8_t*> rows;  ///< input lines under the kernel; null: outside
  std::vector<InputLine> lines;           ///< the same for one vector of channels
  AlignedVector<std::uint8_t> interleaved;
  AlignedVector<std::uint8_t> tails;    ///< copies of lines that end with the input
  AlignedVector<std::uint8_t> padding;  ///< a vector of zero points
};

}  // namespace quanta::cpu
