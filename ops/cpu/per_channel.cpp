#include "quanta/ops/cpu/per_channel.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

// What one channel needs, with the reciprocal taken once.
struct Channel {
  float scale;
  float inv_scale;
  double double_scale;
  std::int64_t zero_point;
  float float_zero_point;
};

Channel channel_at(const Quantizer& quantizer, std::int64_t c) {
  const ChannelQParams& qparams = *quantizer.channel;
  const auto i = static_cast<std::size_t>(c);
  const bool float_qparams = quantizer.scheme == QScheme::PerChannelAffineFloatQParams;
  const auto scale = static_cast<float>(qparams.scales[i]);
  return {scale, math::inverse_scale(scale), qparams.scales[i],
          float_qparams ? 0 : qparams.zero_points[i],
          float_qparams ? qparams.float_zero_points[i] : 0.0F};
}

template <typename T>
T quantize_one(float x, const Channel& channel, bool float_qparams) {
  constexpr std::int32_t kMin = std::numeric_limits<T>::min();
  constexpr std::int32_t kMax = std::numeric_limits<T>::max();
  if (float_qparams) {
    return static_cast<T>(
        math::quantize_float_qparams(x, channel.scale, channel.float_zero_point, kMin, kMax));
  }
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return math::quantize_qint32(x, channel.inv_scale, channel.zero_point);
  } else {
    return static_cast<T>(math::quantize(x, channel.inv_scale,
                                         static_cast<std::int32_t>(channel.zero_point), kMin, kMax,
                                         /*nan_code=*/0));
  }
}

template <typename T>
void quantize_run(const float* src, T* dst, std::int64_t count, const Channel& channel,
                  bool float_qparams) {
  if constexpr (!std::is_same_v<T, std::int32_t>) {
    if (!float_qparams) {
      const QuantizeArgs args{channel.inv_scale, static_cast<std::int32_t>(channel.zero_point),
                              std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0};
      quantize(src, dst, count, args, Store::Cached);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) dst[i] = quantize_one<T>(src[i], channel, float_qparams);
}

template <typename T>
float dequantize_one(T code, const Channel& channel, bool float_qparams) {
  return float_qparams
             ? math::dequantize_float_qparams(code, channel.scale, channel.float_zero_point)
             : math::dequantize_per_channel(code, channel.double_scale, channel.zero_point);
}

// run(offset, count, channel) over stretches of one channel; when the channels are innermost, the
// stretches would be single elements, so together(offset of channel 0, rows of channels) gets many.
template <typename Run, typename Together>
void for_each_channel(const ChannelLayout& layout, Run&& run, Together&& together) {
  if (layout.inner == 1) {
    const std::int64_t grain =
        std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(layout.channels, 1));
    parallel_for(layout.outer, grain, [&](std::int64_t begin, std::int64_t end) {
      together(begin * layout.channels, end - begin);
    });
    return;
  }
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(layout.inner, 1));
  parallel_for(layout.outer * layout.channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      run(i * layout.inner, layout.inner, i % layout.channels);
    }
  });
}

std::vector<Channel> all_channels(const Quantizer& quantizer, std::int64_t count) {
  std::vector<Channel> channels;
  channels.reserve(static_cast<std::size_t>(count));
  for (std::int64_t c = 0; c < count; ++c) channels.push_back(channel_at(quantizer, c));
  return channels;
}

// The numbers of all channels side by side, as kernels of whole rows take them.
struct ChannelNumbers {
  explicit ChannelNumbers(const std::vector<Channel>& channels) {
    for (const Channel& channel : channels) {
      inv_scales.push_back(channel.inv_scale);
      float_zeros.push_back(static_cast<float>(channel.zero_point));
      scales.push_back(channel.double_scale);
      zeros.push_back(static_cast<double>(channel.zero_point));
    }
  }
  std::vector<float> inv_scales;
  std::vector<float> float_zeros;
  std::vector<double> scales;
  std::vector<double> zeros;
};

template <typename T>
void quantize_typed(const Tensor& x, const QTensor& out) {
  const auto* src = static_cast<const float*>(x.data_ptr());
  auto* dst = static_cast<T*>(out.data_ptr());
  const ChannelLayout layout(out, out.quantizer().axis);
  const std::vector<Channel> channels = all_channels(out.quantizer(), layout.channels);
  const ChannelNumbers numbers(channels);
  const bool float_qparams = out.qscheme() == QScheme::PerChannelAffineFloatQParams;
  for_each_channel(
      layout,
      [&](std::int64_t offset, std::int64_t count, std::int64_t c) {
        quantize_run(src + offset, dst + offset, count, channels[static_cast<std::size_t>(c)],
                     float_qparams);
      },
      [&](std::int64_t offset, std::int64_t rows) {
        if constexpr (sizeof(T) == 1) {
          if (!float_qparams) {
            quantize_rows(src + offset, dst + offset, rows, layout.channels,
                          numbers.inv_scales.data(), numbers.float_zeros.data());
            return;
          }
        }
        for (std::int64_t i = 0; i < rows * layout.channels; ++i) {
          const Channel& channel = channels[static_cast<std::size_t>(i % layout.channels)];
          dst[offset + i] = quantize_one<T>(src[offset + i], channel, float_qparams);
        }
      });
}

template <typename T>
void dequantize_typed(const QTensor& x, float* dst) {
  const auto* src = static_cast<const T*>(x.data_ptr());
  const ChannelLayout layout(x, x.quantizer().axis);
  const std::vector<Channel> channels = all_channels(x.quantizer(), layout.channels);
  const ChannelNumbers numbers(channels);
  const bool float_qparams = x.qscheme() == QScheme::PerChannelAffineFloatQParams;
  for_each_channel(
      layout,
      [&](std::int64_t offset, std::int64_t count, std::int64_t c) {
        if constexpr (sizeof(T) == 1) {
          if (!float_qparams) {
            dequantize_row(src + offset, dst + offset, count, numbers.scales.data() + c,
                           numbers.zeros.data() + c, Rhs::Scalar);
            return;
          }
        }
        const Channel& channel = channels[static_cast<std::size_t>(c)];
        for (std::int64_t i = offset; i < offset + count; ++i) {
          dst[i] = dequantize_one(src[i], channel, float_qparams);
        }
      },
      [&](std::int64_t offset, std::int64_t rows) {
        if constexpr (sizeof(T) == 1) {
          if (!float_qparams) {
            for (std::int64_t row = 0; row < rows; ++row, offset += layout.channels) {
              dequantize_row(src + offset, dst + offset, layout.channels, numbers.scales.data(),
                             numbers.zeros.data(), Rhs::Row);
            }
            return;
          }
        }
        for (std::int64_t i = 0; i < rows * layout.channels; ++i) {
          const Channel& channel = channels[static_cast<std::size_t>(i % layout.channels)];
          dst[offset + i] = dequantize_one(src[offset + i], channel, float_qparams);
        }
      });
}

}  // namespace

ChannelLayout::ChannelLayout(const Tensor& dense, std::int64_t axis) {
  channels = dense.size(axis);
  if (dense.numel() == 0) return;
  // A dimension of size 1 may have any stride.
  inner = channels == 1 ? dense.numel() : dense.strides()[static_cast<std::size_t>(axis)];
  outer = dense.numel() / (channels * inner);
}

void quantize_channels(const Tensor& x, const QTensor& out) {
  switch (int_repr_dtype(out.dtype())) {
    case DType::UInt8:
      return quantize_typed<std::uint8_t>(x, out);
    case DType::Int8:
      return quantize_typed<std::int8_t>(x, out);
    default:
      return quantize_typed<std::int32_t>(x, out);
  }
}

void dequantize_channels(const QTensor& x, float* dst) {
  switch (int_repr_dtype(x.dtype())) {
    case DType::UInt8:
      return dequantize_typed<std::uint8_t>(x, dst);
    case DType::Int8:
      return dequantize_typed<std::int8_t>(x, dst);
    default:
      return dequantize_typed<std::int32_t>(x, dst);
  }
}

}  // namespace quanta::cpu
