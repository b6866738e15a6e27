#pragma once

// Private: integer convolution kernels of our own, exact on every instruction set (products of
// 16-bit values summed in 32 bits). Used where oneDNN has no exact or no fast kernel: weights with
// zero points, machines without VNNI, transposed and depthwise convolutions.

#include <cstdint>
#include <vector>

#include "quanta/runtime/dims.h"

namespace quanta::cpu {

/// Turns int32 sums into codes, a channel n at a time (runtime/quant_math.h, requantize):
///   q = clamp(zero_point + round_half_even((float(acc) + bias[n]) * multiplier[n]), min, max)
struct RequantizeParams {
  const float* bias = nullptr;        ///< [O], bias / (sx * sw); null: 0
  const float* multiplier = nullptr;  ///< [O], sx * sw / s
  std::int32_t zero_point = 0;
  std::int32_t min = 0;
  std::int32_t max = 255;
};

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
};

/// Weights for conv_exact, centred (w - zero point) as int16 in the kernel's own order.
struct ExactWeights {
  std::vector<std::int16_t> data;
};
/// `weight` is int8 in torch's order: [O, C/groups, kD, kH, kW], transposed [C, O/groups, ...];
/// `zero_points` has one entry, or one for each output channel.
ExactWeights pack_exact_weights(const std::int8_t* weight, const std::vector<std::int64_t>& zero_points,
                                const ConvShape& shape);

/// Exact sums, requantized: dst u8.
void conv_exact_u8(const std::uint8_t* src, std::int32_t src_zero_point, const ExactWeights& weights,
                   const ConvShape& shape, const RequantizeParams& requantize, std::uint8_t* dst);
/// Exact sums as they are: dst int32 [N, OD, OH, OW, O].
void conv_exact_s32(const std::uint8_t* src, std::int32_t src_zero_point, const ExactWeights& weights,
                    const ConvShape& shape, std::int32_t* dst);

/// Whether conv_depthwise_u8 does this shape (groups == in_channels == out_channels, not transposed).
bool is_depthwise(const ConvShape& shape);
ExactWeights pack_depthwise_weights(const std::int8_t* weight, const std::vector<std::int64_t>& zero_points,
                                    const ConvShape& shape);
/// The fast path for depthwise convolutions, any kernel, stride, dilation and channel count.
void conv_depthwise_u8(const std::uint8_t* src, std::int32_t src_zero_point,
                       const ExactWeights& weights, const ConvShape& shape,
                       const RequantizeParams& requantize, std::uint8_t* dst);

/// dst[r][n] = requantize(acc[r][n] + compensation[n]); compensation may be null. rows x channels,
/// both dense.
void requantize_rows(const std::int32_t* acc, const std::int32_t* compensation, std::int64_t rows,
                     std::int64_t channels, const RequantizeParams& requantize, std::uint8_t* dst);

}  // namespace quanta::cpu
