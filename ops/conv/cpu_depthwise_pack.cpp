#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "quanta/ops/conv/cpu_depthwise.h"
#include "quanta/ops/conv/cpu_depthwise_call.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cpu {
namespace {

/// Where the weight of a channel and kernel position lies; `rows` to a group, `shift` rows later.
struct Layout {
  std::int64_t kernel_width, blocks, rows, shift;

  std::size_t index(std::int64_t channel, std::int64_t row, std::int64_t column) const {
    const std::int64_t shifted = row + shift;
    const std::int64_t tap = shifted / rows * kernel_width + column;
    const std::int64_t quad = channel % 16 / 4;
    const std::int64_t lane = ((tap * 4 + quad) * blocks + channel / 16) * 4 + channel % 4;
    return static_cast<std::size_t>(lane * rows + shifted % rows);
  }
};

template <typename T>
AlignedVector<T> pack(const std::vector<std::int16_t>& centred, const ConvShape& shape,
                      std::int64_t rows_of_group) {
  const std::int64_t rows = shape.kernel[0] * shape.kernel[1];
  const std::int64_t columns = shape.kernel[2];
  const std::int64_t blocks = depthwise_blocks(shape);
  const std::int64_t groups = ceil_div(rows, rows_of_group);
  const auto copy_size = static_cast<std::size_t>(groups * columns * 16 * blocks * rows_of_group);
  const std::int64_t copies = rows % rows_of_group == 0 ? 1 : 2;
  AlignedVector<T> result(copy_size * static_cast<std::size_t>(copies));
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    const Layout layout{columns, blocks, rows_of_group, copy};
    const std::size_t begin = copy_size * static_cast<std::size_t>(copy);
    for (std::int64_t channel = 0; channel < shape.out_channels; ++channel) {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          const std::int64_t from = (channel * rows + row) * columns + column;
          result[begin + layout.index(channel, row, column)] =
              static_cast<T>(centred[static_cast<std::size_t>(from)]);
        }
      }
    }
  }
  return result;
}

/// Whether cpu_depthwise_window.cpp does this shape.
bool fits_window(const ConvShape& shape) {
  const bool square = shape.kernel[1] == shape.kernel[2] && shape.kernel[0] == 1;
  // The sums of 5x5 with a stride of 1 are too many for the registers.
  const bool fits = shape.kernel[2] == 3 || (shape.kernel[2] == 5 && shape.stride[2] == 2);
  return square && fits && shape.dilation[1] == 1 && shape.dilation[2] == 1 &&
         shape.stride[2] <= 2 && shape.out_channels >= 16;
}

/// The last chunk of a size begins earlier where it would not be full.
std::vector<DepthwiseChunk> make_chunks(std::int64_t channels) {
  std::vector<DepthwiseChunk> chunks;
  for (std::int64_t channel = 0; channel < channels;) {
    const std::int64_t left = channels - channel;
    const std::int64_t lines =
        left > 48 && channels >= 64 ? 1 : (left > 16 && channels >= 32 ? 2 : 4);
    chunks.push_back({std::min(channel, channels - 64 / lines), lines});
    channel += 64 / lines;
  }
  return chunks;
}

/// The channel in lane `lane` (of 16) of vector `v` (of four) of a chunk.
std::size_t channel_of(const DepthwiseChunk& chunk, std::int64_t v, std::int64_t lane) {
  const std::int64_t block = lane / 4 % (4 / chunk.lines);
  return static_cast<std::size_t>(chunk.first + block * 16 + v * 4 + lane % 4);
}

void pack_windows(const std::vector<std::int16_t>& centred, const ConvShape& shape,
                  DepthwiseWeights& result) {
  const std::int64_t kernel = shape.kernel[2];
  const std::int64_t groups = (kernel + 3) / 4;
  result.chunks = make_chunks(shape.out_channels);
  result.windows.assign(result.chunks.size() * static_cast<std::size_t>(groups * kernel * 256), 0);
  std::int8_t* dst = result.windows.data();
  for (const DepthwiseChunk& chunk : result.chunks) {
    for (std::int64_t at = 0; at < groups * kernel * 256; ++at) {
      const std::int64_t row = at / (kernel * 256) * 4 + at % 4;
      if (row >= kernel) continue;
      const std::int64_t tap = row * kernel + at / 256 % kernel;
      const std::size_t channel = channel_of(chunk, at / 64 % 4, at / 4 % 16);
      dst[at] =
          static_cast<std::int8_t>(centred[channel * static_cast<std::size_t>(kernel * kernel) +
                                           static_cast<std::size_t>(tap)]);
    }
    dst += groups * kernel * 256;
  }
}

/// Numbers of the chunks, as DepthwiseEpilogue::windows has them.
void order_windows(const DepthwiseWeights& weights, const std::vector<float>& bias,
                   const std::vector<float>& multiplier, const std::vector<std::int32_t>& offset,
                   AlignedVector<float>& dst) {
  dst.resize(weights.chunks.size() * 192);
  float* to = dst.data();
  for (const DepthwiseChunk& chunk : weights.chunks) {
    for (std::int64_t at = 0; at < 64; ++at) {
      const std::size_t channel = channel_of(chunk, at / 16, at % 16);
      to[at] = bias[channel];
      to[64 + at] = multiplier[channel];
      std::memcpy(to + 128 + at, &offset[channel], sizeof(float));
    }
    to += 192;
  }
}

}  // namespace

bool is_depthwise(const ConvShape& shape) {
  // Lines are interleaved as far as the outputs of a tile reach, for each thread.
  constexpr std::int64_t kMostColumns = 16384;
  const std::int64_t columns =
      (kDepthwiseTile - 1) * shape.stride[2] + (shape.kernel[2] - 1) * shape.dilation[2] + 1;
  return !shape.transposed && shape.groups == shape.in_channels &&
         shape.groups == shape.out_channels && columns <= kMostColumns;
}

std::int64_t depthwise_blocks(const ConvShape& shape) { return (shape.out_channels + 63) / 64 * 4; }

DepthwiseWeights pack_depthwise_weights(const std::int8_t* weight,
                                        const std::vector<std::int64_t>& zero_points,
                                        const ConvShape& shape) {
  const std::int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  DepthwiseWeights result;
  result.sums.assign(static_cast<std::size_t>(depthwise_blocks(shape) * 16), 0);
  result.channel_sums.assign(static_cast<std::size_t>(shape.out_channels), 0);
  result.channel_bounds = result.channel_sums;
  std::vector<std::int16_t> centred(static_cast<std::size_t>(shape.out_channels * taps));
  const Layout sums_layout{1, depthwise_blocks(shape), 1, 0};
  for (std::int64_t channel = 0; channel < shape.out_channels; ++channel) {
    const std::int64_t zero_point =
        zero_points[zero_points.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const auto value = static_cast<std::int16_t>(weight[channel * taps + tap] - zero_point);
      centred[static_cast<std::size_t>(channel * taps + tap)] = value;
      result.sums[sums_layout.index(channel, 0, 0)] += value;
      result.channel_sums[static_cast<std::size_t>(channel)] += value;
      result.channel_bounds[static_cast<std::size_t>(channel)] += std::abs(value);
    }
  }
  result.pairs = pack<std::int16_t>(centred, shape, 2);
  const bool fits = std::all_of(centred.begin(), centred.end(),
                                [](std::int16_t w) { return w >= -128 && w <= 127; });
  if (fits) result.quads = pack<std::int8_t>(centred, shape, 4);
  if (fits && fits_window(shape) && has_depthwise_windows()) pack_windows(centred, shape, result);
  return result;
}

DepthwiseEpilogue depthwise_epilogue(const DepthwiseWeights& weights, std::int32_t src_zero_point,
                                     const RequantizeParams& requantize) {
  DepthwiseEpilogue result{src_zero_point, requantize, {}};
  const std::size_t channels = weights.channel_sums.size();
  std::vector<float> bias(channels, 0.0F);
  if (requantize.bias != nullptr) bias.assign(requantize.bias, requantize.bias + channels);
  const std::vector<float> multiplier(requantize.multiplier, requantize.multiplier + channels);
  // The sums are of x * w, border included: sum((x - zx) * w) = sum(x * w) - zx * sum(w).
  std::vector<std::int32_t> offset(channels);
  constexpr float kFar = 1.0e9F;
  bool bounded = requantize.max == 255;
  for (std::size_t i = 0; i < channels; ++i) {
    offset[i] = -src_zero_point * weights.channel_sums[i];
    const float most = static_cast<float>(weights.channel_bounds[i]) * 255.0F +
                       std::fabs(bias[i] * requantize.bias_factor);
    // False for NaN.
    bounded = bounded && most * std::fabs(multiplier[i]) < kFar;
  }
  if (bounded) order_windows(weights, bias, multiplier, offset, result.windows);
  return result;
}

}  // namespace quanta::cpu
