#pragma once

// Private: quantized depthwise convolutions, exact on every instruction set.

#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/aligned_vector.h"
#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cpu/gemm/requantize_rows.h"

namespace quanta::cpu {

/// Channels whose sums of one output fill a vector of 64 bytes: 64, or 32 of two lines, or 16 of
/// four lines.
struct DepthwiseChunk {
  std::int64_t first;
  std::int64_t lines;
};

/// Weights for conv_depthwise_u8. The rows of a kernel (kD * kH) are taken in groups that one
/// instruction multiplies. Channels lie in blocks of 16, of which the vectors of every instruction
/// set hold a whole number, so that one order suits all:
///   [group of rows][kW][quad of a block's channels (4)][block][channel of the quad (4)][row]
/// Where the last group has room a second copy follows, moved down by a row: its sums belong to the
/// next output line, from the same input rows.
struct DepthwiseWeights {
  AlignedVector<std::int16_t> pairs;  ///< two rows in a group
  AlignedVector<std::int8_t> quads;   ///< four rows in a group; empty if int8 is too small
  AlignedVector<std::int32_t> sums;   ///< of each channel's weights: [quad][block][channel]
  /// Where conv_depthwise_window.cpp does the shape, four rows in a group, of each chunk:
  ///   [group of rows][kW][quad][block of 16 channels (4)][channel of the quad (4)][row]
  std::vector<DepthwiseChunk> chunks;
  AlignedVector<std::int8_t> windows;
  std::vector<std::int32_t> channel_sums, channel_bounds;  ///< of each channel w, and |w|
};
/// Blocks in these weights: those of all channels, rounded up to the longest vectors.
std::int64_t depthwise_blocks(const ConvShape& shape);
/// Outputs of a line at a time: what they need stays in the L1 cache for all channels.
inline constexpr std::int64_t kDepthwiseTile = 28;
/// Whether conv_depthwise_u8 does this shape: groups == in_channels == out_channels, not
/// transposed, and strides and dilations whose lines fit into its memory.
bool is_depthwise(const ConvShape& shape);
DepthwiseWeights pack_depthwise_weights(const std::int8_t* weight,
                                        const std::vector<std::int64_t>& zero_points,
                                        const ConvShape& shape);

/// What follows the sums. `params` points to what it was made of.
struct DepthwiseEpilogue {
  std::int32_t src_zero_point = 0;
  RequantizeParams params;
  /// Each chunk has its bias, its multiplier and the bits of what its sums start from, 64 of each.
  /// It is empty where scaled sums could leave the range of int32, or params.max is below 255.
  AlignedVector<float> windows;
};
DepthwiseEpilogue depthwise_epilogue(const DepthwiseWeights& weights, std::int32_t src_zero_point,
                                     const RequantizeParams& requantize);

/// Any kernel and channel count, and what else is_depthwise allows.
void conv_depthwise_u8(const std::uint8_t* src, const DepthwiseWeights& weights,
                       const DepthwiseEpilogue& epilogue, const ConvShape& shape,
                       std::uint8_t* dst);

}  // namespace quanta::cpu
