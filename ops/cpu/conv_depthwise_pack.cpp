#include <algorithm>

#include "quanta/ops/cpu/conv_exact.h"

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
  const std::int64_t groups = (rows + rows_of_group - 1) / rows_of_group;
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

}  // namespace

bool is_depthwise(const ConvShape& shape) {
  return !shape.transposed && shape.groups == shape.in_channels &&
         shape.groups == shape.out_channels;
}

std::int64_t depthwise_blocks(const ConvShape& shape) { return (shape.out_channels + 63) / 64 * 4; }

DepthwiseWeights pack_depthwise_weights(const std::int8_t* weight,
                                        const std::vector<std::int64_t>& zero_points,
                                        const ConvShape& shape) {
  const std::int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  DepthwiseWeights result;
  result.sums.assign(static_cast<std::size_t>(depthwise_blocks(shape) * 16), 0);
  std::vector<std::int16_t> centred(static_cast<std::size_t>(shape.out_channels * taps));
  const Layout sums_layout{1, depthwise_blocks(shape), 1, 0};
  for (std::int64_t channel = 0; channel < shape.out_channels; ++channel) {
    const std::int64_t zero_point =
        zero_points[zero_points.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const auto value = static_cast<std::int16_t>(weight[channel * taps + tap] - zero_point);
      centred[static_cast<std::size_t>(channel * taps + tap)] = value;
      result.sums[sums_layout.index(channel, 0, 0)] += value;
    }
  }
  result.pairs = pack<std::int16_t>(centred, shape, 2);
  const bool fits = std::all_of(centred.begin(), centred.end(),
                                [](std::int16_t w) { return w >= -128 && w <= 127; });
  if (fits) result.quads = pack<std::int8_t>(centred, shape, 4);
  return result;
}

}  // namespace quanta::cpu
