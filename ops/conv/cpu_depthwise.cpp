#include "quanta/ops/conv/cpu_depthwise.h"

#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/conv/cpu_depthwise.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "quanta/ops/conv/cpu_depthwise_call.h"
#include "quanta/ops/conv/cpu_depthwise_lines.h"
#include "quanta/ops/cpu/simd/requantize_simd.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS

template <Rows kRows, std::size_t kBytes, int kLines>
void sum_lines_of_shape(const LineShape& shape, const LineWeights& weights,
                        const std::uint8_t* interleaved, const RequantizeParams& params,
                        const OutputLines& out) {
  const auto sum = [&](auto width, auto stride) QUANTA_ATTR {
    sum_lines<kRows, kBytes, kLines, decltype(width)::value, decltype(stride)::value>(
        shape, weights, interleaved, params, out);
  };
  using std::integral_constant;
  if constexpr (kRows == Rows::Pair && kCode == Code::Avx512Vbmi) {
    // Only for weights that do not fit in int8.
    return sum(integral_constant<int, 0>(), integral_constant<int, 0>());
  }
  const std::int64_t width = shape.dilation == 1 ? shape.kernel_width : 0;
  if (width == 3 && shape.stride == 1) {
    return sum(integral_constant<int, 3>(), integral_constant<int, 1>());
  }
  if (width == 5 && shape.stride == 1) {
    return sum(integral_constant<int, 5>(), integral_constant<int, 1>());
  }
  if constexpr (kLines == 1) {
    if (width == 3 && shape.stride == 2) {
      return sum(integral_constant<int, 3>(), integral_constant<int, 2>());
    }
    if (width == 5 && shape.stride == 2) {
      return sum(integral_constant<int, 5>(), integral_constant<int, 2>());
    }
  }
  sum(integral_constant<int, 0>(), integral_constant<int, 0>());
}

/// A run of output lines.
template <Rows kRows>
class LineRunner {
 public:
  LineRunner(const DepthwiseCall& call, DepthwiseScratch& scratch)
      : call_(call), scratch_(scratch) {
    constexpr auto kGroup = static_cast<std::int64_t>(kRows);
    const ConvShape& s = call.shape;
    rows_ = s.kernel[0] * s.kernel[1];
    shape_.width = s.in[2];
    shape_.groups = ceil_div(rows_, kGroup);
    shape_.kernel_width = s.kernel[2];
    shape_.stride = s.stride[2];
    shape_.dilation = s.dilation[2];
    const std::int64_t tiles = ceil_div(s.out[2], kDepthwiseTile);
    tile_ = ceil_div(s.out[2], tiles);
    blocks_ = depthwise_blocks(s);
    can_pair_lines_ = s.kernel[0] == 1 && s.stride[1] == 1 && s.dilation[1] == 1 &&
                      rows_ < shape_.groups * kGroup;
    src_end_ = call.src + s.batch * s.in[0] * s.in[1] * s.in[2] * s.in_channels;

    const auto all_rows = static_cast<std::size_t>(shape_.groups * kGroup);
    scratch.rows.resize(all_rows);
    scratch.lines.resize(all_rows);
    grow(scratch.interleaved,
         static_cast<std::size_t>(columns_of(tile_) * shape_.groups * 4) * kVectorBytes);
    if (s.in_channels % static_cast<std::int64_t>(kVectorBytes) != 0) {
      grow(scratch.tails, all_rows * static_cast<std::size_t>(s.in[2]) * kVectorBytes);
    }
    scratch.padding.assign(kVectorBytes, static_cast<std::uint8_t>(call.src_zero_point));
  }

  void run(std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end;) {
      const DepthwiseLine line(call_.shape, index);
      const bool two = can_pair_lines_ && index + 1 < end && line.height + 1 < call_.shape.out[1];
      const std::int64_t used = rows_ + (two ? 1 : 0);
      for (std::size_t row = 0; row < scratch_.rows.size(); ++row) {
        const auto at = static_cast<std::int64_t>(row);
        scratch_.rows[row] = at < used ? line.input(call_.src, call_.shape, at) : nullptr;
      }
      if (two) {
        run_tiles<2>(index);
      } else {
        run_tiles<1>(index);
      }
      index += two ? 2 : 1;
    }
  }

 private:
  std::int64_t columns_of(std::int64_t outputs) const {
    return (outputs - 1) * shape_.stride + (shape_.kernel_width - 1) * shape_.dilation + 1;
  }

  static void grow(AlignedVector<std::uint8_t>& memory, std::size_t size) {
    if (memory.size() < size) memory.resize(size);
  }

  template <int kLines>
  void run_tiles(std::int64_t index) {
    for (std::int64_t x = 0; x < call_.shape.out[2]; x += tile_) {
      shape_.first = x * shape_.stride - call_.shape.padding[2];
      shape_.outputs = std::min(tile_, call_.shape.out[2] - x);
      shape_.columns = columns_of(shape_.outputs);
      run_tile<kLines>(index, x);
    }
  }

  /// All channels of shape_.outputs outputs from `x` on.
  template <int kLines>
  void run_tile(std::int64_t index, std::int64_t x) {
    const std::int64_t channels = call_.shape.in_channels;
    for (std::int64_t channel = 0; channel < channels;) {
      const std::int64_t left = channels - channel;
      if constexpr (kVectorBytes == 64) {
        if (left > 32) {
          channel += run_vector<64, kLines>(index, x, channel);
          continue;
        }
      }
      channel += left > 16 ? run_vector<32, kLines>(index, x, channel)
                           : run_vector<16, kLines>(index, x, channel);
    }
  }

  /// One vector of channels from `channel` on; returns their number.
  template <std::size_t kBytes, int kLines>
  std::int64_t run_vector(std::int64_t index, std::int64_t x, std::int64_t channel) {
    const std::int64_t channels = call_.shape.in_channels;
    const std::int64_t count = std::min(static_cast<std::int64_t>(kBytes), channels - channel);
    for (std::size_t row = 0; row < scratch_.rows.size(); ++row) {
      scratch_.lines[row] = input_line<kBytes>(row, channel, count);
    }
    interleave_lines<kRows, kBytes>(shape_, scratch_.lines.data(), scratch_.padding.data(),
                                    scratch_.interleaved.data());
    const std::int64_t parameter = channel / 16 * 4;
    LineWeights weights{};
    weights.weight = kRows == Rows::Quad
                         ? reinterpret_cast<const std::uint8_t*>(call_.weights.quads.data())
                         : reinterpret_cast<const std::uint8_t*>(call_.weights.pairs.data());
    weights.weight += channel;
    // A block of 16 channels has 16 bytes for each quad of channels: four times two int16 of a pair
    // of rows, or four int8 of four rows.
    weights.quad_stride = blocks_ * 16;
    weights.tap_stride = weights.quad_stride * 4;
    weights.copy_stride = weights.tap_stride * shape_.kernel_width * shape_.groups;
    weights.offset = call_.offset + parameter;
    weights.bias = call_.bias + parameter;
    weights.multiplier = call_.multiplier + parameter;
    weights.parameter_stride = blocks_ * 4;
    OutputLines out{};
    out.step = channels;
    out.line_step = call_.shape.out[2] * channels;
    out.data = call_.dst + index * out.line_step + x * channels + channel;
    out.count = count;
    sum_lines_of_shape<kRows, kBytes, kLines>(shape_, weights, scratch_.interleaved.data(),
                                              call_.requantize, out);
    return count;
  }

  template <std::size_t kBytes>
  InputLine input_line(std::size_t row, std::int64_t channel, std::int64_t count) {
    const std::uint8_t* line = scratch_.rows[row];
    if (line == nullptr) return {scratch_.padding.data(), 0};
    const std::int64_t channels = call_.shape.in_channels;
    const std::uint8_t* last = line + (shape_.width - 1) * channels + channel;
    // Vectors may read the following pixel's channels, but nothing after the input.
    if (src_end_ - last >= static_cast<std::int64_t>(kBytes)) return {line + channel, channels};
    std::uint8_t* copy =
        scratch_.tails.data() + row * static_cast<std::size_t>(shape_.width) * kBytes;
    for (std::int64_t x = 0; x < shape_.width; ++x) {
      std::memcpy(copy + static_cast<std::size_t>(x) * kBytes, line + x * channels + channel,
                  static_cast<std::size_t>(count));
    }
    return {copy, static_cast<std::int64_t>(kBytes)};
  }

  const DepthwiseCall& call_;
  DepthwiseScratch& scratch_;
  std::int64_t rows_, blocks_, tile_;
  LineShape shape_;
  bool can_pair_lines_;
  const std::uint8_t* src_end_;
};

void convolve_lines(const DepthwiseCall& call, std::int64_t begin, std::int64_t end,
                    DepthwiseScratch& scratch) {
  if (!call.weights.quads.empty() && features().has_dot_product(kCode)) {
    return LineRunner<Rows::Quad>(call, scratch).run(begin, end);
  }
  LineRunner<Rows::Pair>(call, scratch).run(begin, end);
}

#else  // !QUANTA_VECTORS

std::uint8_t convolve_output(const DepthwiseCall& call, const DepthwiseLine& line, std::int64_t x,
                             std::int64_t channel) {
  const ConvShape& shape = call.shape;
  const std::int64_t blocks = depthwise_blocks(shape);
  const auto parameter = [&](std::int64_t quad) {
    return (quad * blocks + channel / 16) * 4 + channel % 4;
  };
  const std::int64_t own = parameter(channel % 16 / 4);
  std::int32_t sum = call.offset[own];
  for (std::int64_t row = 0; row < shape.kernel[0] * shape.kernel[1]; ++row) {
    const std::uint8_t* input = line.input(call.src, shape, row);
    for (std::int64_t k = 0; k < shape.kernel[2]; ++k) {
      const std::int64_t from = x * shape.stride[2] - shape.padding[2] + k * shape.dilation[2];
      const bool inside = input != nullptr && from >= 0 && from < shape.in[2];
      const std::int32_t code =
          inside ? input[from * shape.in_channels + channel] : call.src_zero_point;
      const std::int64_t quad = (row / 2 * shape.kernel[2] + k) * 4 + channel % 16 / 4;
      sum += code * call.weights.pairs[static_cast<std::size_t>(parameter(quad) * 2 + row % 2)];
    }
  }
  const RequantizeParams& p = call.requantize;
  return static_cast<std::uint8_t>(math::requantize(
      sum, call.bias[own], p.bias_factor, call.multiplier[own], p.zero_point, p.min, p.max));
}

void convolve_lines(const DepthwiseCall& call, std::int64_t begin, std::int64_t end,
                    DepthwiseScratch& /*scratch*/) {
  const std::int64_t channels = call.shape.in_channels;
  const std::int64_t width = call.shape.out[2];
  for (std::int64_t index = begin; index < end; ++index) {
    const DepthwiseLine line(call.shape, index);
    for (std::int64_t x = 0; x < width; ++x) {
      std::uint8_t* dst = call.dst + (index * width + x) * channels;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        dst[channel] = convolve_output(call, line, x, channel);
      }
    }
  }
}

#endif

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(convolve_lines);

namespace {

/// Puts the parameters of channels in the order of DepthwiseWeights::sums.
void order_parameters(const float* src, std::int64_t channels, std::int64_t blocks, float* dst) {
  for (std::int64_t channel = 0; channel < channels; channel += 4) {
    float* quad = dst + (channel % 16 / 4 * blocks + channel / 16) * 4;
    std::memcpy(
        quad, src + channel,
        static_cast<std::size_t>(std::min<std::int64_t>(4, channels - channel)) * sizeof(float));
  }
}

/// Memory of the calling thread, kept between calls.
struct Parameters {
  AlignedVector<float> bias, multiplier;
  AlignedVector<std::int32_t> offset;
};

}  // namespace

void conv_depthwise_u8(const std::uint8_t* src, const DepthwiseWeights& weights,
                       const DepthwiseEpilogue& epilogue, const ConvShape& shape,
                       std::uint8_t* dst) {
  const std::int64_t lines = shape.batch * shape.out[0] * shape.out[1];
  if (lines * shape.out[2] * shape.out_channels == 0) return;
  constexpr std::int64_t kGrain = 16384;
  const std::int64_t grain =
      std::max<std::int64_t>(kGrain / (shape.out[2] * shape.out_channels), 1);
  if (!weights.chunks.empty() && !epilogue.windows.empty()) {
    const WindowCall call{src, weights, epilogue, shape, dst};
    return parallel_for(lines, grain, [&](std::int64_t begin, std::int64_t end) {
      depthwise_windows(call, begin, end);
    });
  }
  const RequantizeParams& requantize = epilogue.params;
  const std::int32_t src_zero_point = epilogue.src_zero_point;
  thread_local Parameters parameters;
  const std::int64_t blocks = depthwise_blocks(shape);
  const auto size = static_cast<std::size_t>(blocks * 16);
  parameters.multiplier.assign(size, 0.0F);
  order_parameters(requantize.multiplier, shape.out_channels, blocks, parameters.multiplier.data());
  parameters.bias.assign(size, 0.0F);
  if (requantize.bias != nullptr) {
    order_parameters(requantize.bias, shape.out_channels, blocks, parameters.bias.data());
  }
  // The sums are of x * w, border included: sum((x - zx) * w) = sum(x * w) - zx * sum(w).
  parameters.offset.resize(size);
  for (std::size_t i = 0; i < size; ++i) parameters.offset[i] = -src_zero_point * weights.sums[i];

  const DepthwiseCall call{src,
                           src_zero_point,
                           weights,
                           shape,
                           requantize,
                           dst,
                           parameters.offset.data(),
                           parameters.bias.data(),
                           parameters.multiplier.data()};
  const auto run = HWY_DYNAMIC_DISPATCH(convolve_lines);
  parallel_for(lines, grain, [&](std::int64_t begin, std::int64_t end) {
    thread_local DepthwiseScratch scratch;
    run(call, begin, end, scratch);
  });
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
