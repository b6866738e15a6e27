#include "quanta/ops/quantize/cpu_codes.h"

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

// Sub-byte codes share bytes, so one thread packs whole groups of 8 elements.
template <typename Code>
void pack_codes(std::int64_t count, int bits, std::uint8_t* packed, Code&& code) {
  const std::int64_t per_byte = 8 / bits;
  const std::int64_t bytes = ceil_div(count, per_byte);
  parallel_for(bytes, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      std::uint32_t value = 0;
      for (std::int64_t e = 0; e < per_byte && b * per_byte + e < count; ++e) {
        value |= static_cast<std::uint32_t>(code(b * per_byte + e)) << (e * bits);
      }
      packed[b] = static_cast<std::uint8_t>(value);
    }
  });
}

std::int32_t unpack_code(const std::uint8_t* packed, std::int64_t index, int bits) {
  const std::int64_t per_byte = 8 / bits;
  const auto shift = static_cast<int>(index % per_byte) * bits;
  return (packed[index / per_byte] >> shift) & ((1 << bits) - 1);
}

void quantize_per_tensor(const Tensor& x, const Tensor& out) {
  const Quantizer& quantizer = out.impl()->quantizer;
  const float inv_scale = math::inverse_scale(static_cast<float>(quantizer.scale));
  const auto zero_point = static_cast<std::int32_t>(quantizer.zero_point);
  const auto* src = static_cast<const float*>(x.data_ptr());
  const IntRange range = quant_range(out.dtype());
  const auto min = static_cast<std::int32_t>(range.min);
  const auto max = static_cast<std::int32_t>(range.max);
  const QuantizeArgs args{inv_scale, zero_point, min, max, max};
  const Store store = store_for(out.nbytes(), out.data_ptr());
  if (out.dtype() == DType::QInt32) {
    auto* dst = static_cast<std::int32_t*>(out.data_ptr());
    parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        dst[i] = math::quantize_qint32(src[i], inv_scale, zero_point);
      }
    });
  } else if (is_sub_byte(out.dtype())) {
    pack_codes(
        x.numel(), item_bits(out.dtype()), static_cast<std::uint8_t*>(out.data_ptr()),
        [&](std::int64_t i) { return math::quantize(src[i], inv_scale, zero_point, min, max); });
  } else {
    parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      if (out.dtype() == DType::QUInt8) {
        quantize(src + begin, static_cast<std::uint8_t*>(out.data_ptr()) + begin, end - begin, args,
                 store);
      } else {
        quantize(src + begin, static_cast<std::int8_t*>(out.data_ptr()) + begin, end - begin, args,
                 store);
      }
    });
  }
}

// Sub-byte kinds have float zero points.
void quantize_sub_byte_channels(const Tensor& x, const Tensor& out) {
  const ChannelLayout layout(x, out.impl()->quantizer.axis);
  const auto* src = static_cast<const float*>(x.data_ptr());
  const ChannelQParams& channel = *out.impl()->quantizer.channel;
  const IntRange range = quant_range(out.dtype());
  pack_codes(x.numel(), item_bits(out.dtype()), static_cast<std::uint8_t*>(out.data_ptr()),
             [&](std::int64_t i) {
               const std::size_t c = layout.channel_of(i);
               return math::quantize_float_qparams(
                   src[i], static_cast<float>(channel.scales[c]), channel.float_zero_points[c],
                   static_cast<std::int32_t>(range.min), static_cast<std::int32_t>(range.max));
             });
}

void dequantize_per_tensor(const Tensor& x, float* dst, Store store) {
  const auto scale = static_cast<float>(x.impl()->quantizer.scale);
  const auto zero_point = static_cast<std::int32_t>(x.impl()->quantizer.zero_point);
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    switch (x.dtype()) {
      case DType::QUInt8:
        dequantize(static_cast<const std::uint8_t*>(x.data_ptr()) + begin, dst + begin, end - begin,
                   scale, zero_point, store);
        return;
      case DType::QInt8:
        dequantize(static_cast<const std::int8_t*>(x.data_ptr()) + begin, dst + begin, end - begin,
                   scale, zero_point, store);
        return;
      case DType::QInt32: {
        const auto* src = static_cast<const std::int32_t*>(x.data_ptr());
        for (std::int64_t i = begin; i < end; ++i) {
          dst[i] = math::dequantize(src[i], scale, zero_point);
        }
        return;
      }
      default: {
        const auto* src = static_cast<const std::uint8_t*>(x.data_ptr());
        for (std::int64_t i = begin; i < end; ++i) {
          dst[i] = math::dequantize(unpack_code(src, i, item_bits(x.dtype())), scale, zero_point);
        }
        return;
      }
    }
  });
}

void dequantize_sub_byte_channels(const Tensor& x, float* dst) {
  const Quantizer& quantizer = x.impl()->quantizer;
  const ChannelLayout layout(x, quantizer.axis);
  const ChannelQParams& channel = *quantizer.channel;
  const auto* src = static_cast<const std::uint8_t*>(x.data_ptr());
  const bool float_qparams = quantizer.scheme == QScheme::PerChannelAffineFloatQParams;
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::size_t c = layout.channel_of(i);
      const std::int32_t code = unpack_code(src, i, item_bits(x.dtype()));
      dst[i] = float_qparams
                   ? math::dequantize_float_qparams(code, static_cast<float>(channel.scales[c]),
                                                    channel.float_zero_points[c])
                   : math::dequantize_per_channel(code, channel.scales[c], channel.zero_points[c]);
    }
  });
}

}  // namespace

void quantize_tensor(const Tensor& x, const Tensor& out) {
  if (!is_per_channel(out.impl()->quantizer.scheme)) {
    quantize_per_tensor(x, out);
  } else if (is_sub_byte(out.dtype())) {
    quantize_sub_byte_channels(x, out);
  } else {
    quantize_channels(x, QTensor(out));
  }
}

void dequantize_tensor(const Tensor& x, const Tensor& out) {
  auto* dst = static_cast<float*>(out.data_ptr());
  if (!is_per_channel(x.impl()->quantizer.scheme)) {
    dequantize_per_tensor(x, dst, store_for(out.nbytes(), dst));
  } else if (is_sub_byte(x.dtype())) {
    dequantize_sub_byte_channels(x, dst);
  } else {
    dequantize_channels(QTensor(x), dst);
  }
}

}  // namespace quanta::cpu
