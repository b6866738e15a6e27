#include "quanta/ops/quantize.h"

#include <cmath>
#include <cstring>

#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

void check_float_input(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a Float32 tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::Float32, "{}: x: expected Float32, got {}", op, x.dtype());
}

// Sub-byte codes share bytes, so one thread packs whole groups of 8 elements.
template <typename Code>
void pack_codes(std::int64_t count, int bits, std::uint8_t* packed, Code&& code) {
  const std::int64_t per_byte = 8 / bits;
  const std::int64_t bytes = (count + per_byte - 1) / per_byte;
  parallel_for(bytes, cpu::kElementGrain, [&](std::int64_t begin, std::int64_t end) {
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

void quantize_to(const Tensor& x, const QTensor& out) {
  const float inv_scale = math::inverse_scale(static_cast<float>(out.quantizer().scale));
  const auto zero_point = static_cast<std::int32_t>(out.quantizer().zero_point);
  const auto* src = static_cast<const float*>(x.data_ptr());
  const IntRange range = quant_range(out.dtype());
  const auto min = static_cast<std::int32_t>(range.min);
  const auto max = static_cast<std::int32_t>(range.max);
  const cpu::QuantizeArgs args{inv_scale, zero_point, min, max, max};
  const cpu::Store store = cpu::store_for(out.nbytes());
  if (out.dtype() == DType::QInt32) {
    auto* dst = static_cast<std::int32_t*>(out.data_ptr());
    cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        dst[i] = math::quantize_qint32(src[i], inv_scale, zero_point);
      }
    });
  } else if (is_sub_byte(out.dtype())) {
    pack_codes(
        x.numel(), item_bits(out.dtype()), static_cast<std::uint8_t*>(out.data_ptr()),
        [&](std::int64_t i) { return math::quantize(src[i], inv_scale, zero_point, min, max); });
  } else {
    cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      if (out.dtype() == DType::QUInt8) {
        cpu::quantize(src + begin, static_cast<std::uint8_t*>(out.data_ptr()) + begin, end - begin,
                      args, store);
      } else {
        cpu::quantize(src + begin, static_cast<std::int8_t*>(out.data_ptr()) + begin, end - begin,
                      args, store);
      }
    });
  }
}

QTensor quantize_checked(std::string_view op, const Tensor& x, double scale,
                         std::int64_t zero_point, DType dtype) {
  check_float_input(op, x);
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  check_quantizer(op, quantizer, dtype, x.sizes());

  const MemoryFormat format = is_sub_byte(dtype) ? MemoryFormat::Contiguous : x.suggested_format();
  QTensor out = QTensor::empty(x.sizes(), dtype, quantizer, format);

  const Tensor dense = x.contiguous(format);
  quantize_to(dense, out);
  if (replay::is_recording()) {
    replay::record(
        {.op = op,
         .inputs = {dense},
         .outputs = {out},
         .run = [](const replay::Frame& f) { quantize_to(f.in(), QTensor(f.out())); },
         .identity = fmt::format("{} {} {}", scale, zero_point, to_string(dtype)),
         .role = PlanUse::Role::Quantize,
         .with_codes = [](std::shared_ptr<const cpu::CodeTable> table) -> replay::Kernel {
           return [table](const replay::Frame& f) { cpu::map_bytes(f.in(), f.out(), *table); };
         }});
  }
  return out;
}

// Scales and zero points given as tensors.
double scale_at(std::string_view op, const Tensor& scales, std::int64_t index) {
  QUANTA_CHECK(scales.defined() && scales.is_floating_point(),
               "{}: scale: expected a floating tensor, got {}", op,
               scales.defined() ? to_string(scales.dtype()) : "an undefined one");
  return scales.reshape({-1}).select(0, index).item();
}

std::int64_t zero_point_at(std::string_view op, const Tensor& zero_points, std::int64_t index) {
  QUANTA_CHECK(zero_points.defined() && !zero_points.is_floating_point() &&
                   !zero_points.is_quantized() && zero_points.dtype() != DType::Bool,
               "{}: zero_point: expected an integer tensor, got {}", op,
               zero_points.defined() ? to_string(zero_points.dtype()) : "an undefined one");
  return zero_points.reshape({-1}).select(0, index).to(DType::Int64).to_int64_vector().front();
}

template <typename T>
std::vector<T> values_of(const Tensor& x, DType dtype) {
  const Tensor converted = x.to(dtype).contiguous();
  const T* data = converted.data<T>();
  return {data, data + converted.numel()};
}

void check_channel_vector(std::string_view argument, const Tensor& values, std::int64_t channels) {
  QUANTA_CHECK(values.defined(),
               "quantize_per_channel: {}: expected a tensor, got an undefined one", argument);
  QUANTA_CHECK(!values.is_quantized() && values.dtype() != DType::Bool,
               "quantize_per_channel: {}: expected a plain numeric tensor, got {}", argument,
               values.dtype());
  QUANTA_CHECK(values.dim() == 1 && values.numel() == channels,
               "quantize_per_channel: {}: expected [{}], one for each index along axis, got {}",
               argument, channels, values.sizes());
}

// Both dense and of one memory order.
void quantize_channels_to(const Tensor& x, const QTensor& out) {
  if (!is_sub_byte(out.dtype())) return cpu::quantize_channels(x, out);
  const cpu::ChannelLayout layout(x, out.quantizer().axis);
  const auto* src = static_cast<const float*>(x.data_ptr());
  const ChannelQParams& channel = *out.quantizer().channel;
  const IntRange range = quant_range(out.dtype());
  pack_codes(x.numel(), item_bits(out.dtype()), static_cast<std::uint8_t*>(out.data_ptr()),
             [&](std::int64_t i) {
               const std::size_t c = layout.channel_of(i);
               return math::quantize_float_qparams(
                   src[i], static_cast<float>(channel.scales[c]), channel.float_zero_points[c],
                   static_cast<std::int32_t>(range.min), static_cast<std::int32_t>(range.max));
             });
}

}  // namespace

QTensor quantize_per_tensor(const Tensor& x, double scale, std::int64_t zero_point, DType dtype) {
  OpScope scope("quantize_per_tensor");
  scope.kernel("simd");
  QTensor out = quantize_checked("quantize_per_tensor", x, scale, zero_point, dtype);
  scope.touches(x, out);
  return out;
}

QTensor quantize_per_tensor(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                            DType dtype) {
  QUANTA_CHECK(scale.defined() && scale.numel() == 1,
               "quantize_per_tensor: scale: expected a tensor with one element");
  QUANTA_CHECK(zero_point.defined() && zero_point.numel() == 1,
               "quantize_per_tensor: zero_point: expected a tensor with one element");
  return quantize_per_tensor(x, scale_at("quantize_per_tensor", scale, 0),
                             zero_point_at("quantize_per_tensor", zero_point, 0), dtype);
}

std::vector<QTensor> quantize_per_tensor(std::span<const Tensor> tensors, const Tensor& scales,
                                         const Tensor& zero_points, DType dtype) {
  const auto count = static_cast<std::int64_t>(tensors.size());
  QUANTA_CHECK(scales.defined() && scales.numel() == count,
               "quantize_per_tensor: scales: expected one for each of {} tensors, got {}", count,
               scales.defined() ? scales.numel() : 0);
  QUANTA_CHECK(zero_points.defined() && zero_points.numel() == count,
               "quantize_per_tensor: zero_points: expected one for each of {} tensors, got {}",
               count, zero_points.defined() ? zero_points.numel() : 0);
  std::vector<QTensor> results;
  results.reserve(tensors.size());
  for (std::int64_t i = 0; i < count; ++i) {
    results.push_back(quantize_per_tensor(
        tensors[static_cast<std::size_t>(i)], scale_at("quantize_per_tensor", scales, i),
        zero_point_at("quantize_per_tensor", zero_points, i), dtype));
  }
  return results;
}

QTensor quantize_per_channel(const Tensor& x, const Tensor& scales, const Tensor& zero_points,
                             std::int64_t axis, DType dtype) {
  OpScope scope("quantize_per_channel");
  scope.kernel("simd");
  check_float_input("quantize_per_channel", x);
  QUANTA_CHECK(is_quantized(dtype),
               "quantize_per_channel: dtype: expected a quantized dtype, got {}", dtype);
  QUANTA_CHECK(axis >= 0 && axis < x.dim(), "quantize_per_channel: axis: expected 0..{}, got {}",
               x.dim() - 1, axis);
  check_channel_vector("scales", scales, x.size(axis));
  replay::check_read("quantize_per_channel", scales);
  check_channel_vector("zero_points", zero_points, x.size(axis));
  replay::check_read("quantize_per_channel", zero_points);
  QUANTA_CHECK(scales.is_floating_point(),
               "quantize_per_channel: scales: expected a floating tensor, got {}", scales.dtype());
  const bool float_qparams = zero_points.is_floating_point();
  QUANTA_SUPPORTED(float_qparams || !is_sub_byte(dtype),
                   "quantize_per_channel: dtype: {} takes floating zero points only; integer ones "
                   "work for QUInt8, QInt8 and QInt32",
                   dtype);
  const Quantizer quantizer =
      float_qparams
          ? Quantizer::per_channel_float_qparams(values_of<float>(scales, DType::Float32),
                                                 values_of<float>(zero_points, DType::Float32),
                                                 axis)
          : Quantizer::per_channel(values_of<double>(scales, DType::Float64),
                                   values_of<std::int64_t>(zero_points, DType::Int64), axis);
  check_quantizer("quantize_per_channel", quantizer, dtype, x.sizes());

  const MemoryFormat format = is_sub_byte(dtype) ? MemoryFormat::Contiguous : x.suggested_format();
  QTensor out = QTensor::empty(x.sizes(), dtype, quantizer, format);
  scope.touches(x, out);
  const Tensor dense = x.contiguous(format);
  quantize_channels_to(dense, out);
  if (replay::is_recording()) {
    replay::record(
        {.op = "quantize_per_channel",
         .inputs = {dense},
         .outputs = {out},
         .run = [](const replay::Frame& f) { quantize_channels_to(f.in(), QTensor(f.out())); }});
  }
  return out;
}

math::QParams choose_qparams(float min, float max, IntRange range, bool reduce_range) {
  QUANTA_CHECK(min <= max, "choose_qparams: min: expected min <= max, got {} and {}", min, max);
  QUANTA_CHECK(range.min < range.max && range.min >= std::numeric_limits<std::int32_t>::min() / 2 &&
                   range.max <= std::numeric_limits<std::int32_t>::max() / 2,
               "choose_qparams: range: expected min < max within 31 bits, got {}..{}", range.min,
               range.max);
  math::ChooseOptions options;
  options.reduce_range = reduce_range;
  return math::choose_qparams(min, max, static_cast<std::int32_t>(range.min),
                              static_cast<std::int32_t>(range.max), options);
}

namespace {

cpu::FloatRange range_of(std::string_view op, const Tensor& x) {
  check_float_input(op, x);
  replay::check_read(op, x);
  if (x.numel() == 0) return {0.0F, 0.0F};
  const Tensor dense = x.contiguous(x.suggested_format());
  const cpu::FloatRange range =
      cpu::float_range(static_cast<const float*>(dense.data_ptr()), dense.numel());
  QUANTA_CHECK(std::isfinite(range.min) && std::isfinite(range.max),
               "{}: x: expected finite values, got a range of {}..{}", op, range.min, range.max);
  return range;
}

}  // namespace

math::QParams choose_qparams_per_tensor(const Tensor& x, bool reduce_range) {
  const cpu::FloatRange range = range_of("choose_qparams_per_tensor", x);
  return choose_qparams(range.min, range.max, quant_range(DType::QUInt8), reduce_range);
}

Tensor quantize_per_tensor_dynamic(const Tensor& x, DType dtype, bool reduce_range) {
  OpScope scope("quantize_per_tensor_dynamic");
  scope.kernel("simd");
  constexpr std::string_view kOp = "quantize_per_tensor_dynamic";
  QUANTA_CHECK(dtype == DType::QUInt8 || dtype == DType::QInt8 || dtype == DType::Float16,
               "{}: dtype: expected QUInt8, QInt8 or Float16, got {}", kOp, dtype);
  if (dtype == DType::Float16) {
    check_float_input(kOp, x);
    return x.to(DType::Float16);
  }
  const cpu::FloatRange range = range_of(kOp, x);
  const math::QParams qparams =
      choose_qparams(range.min, range.max, quant_range(dtype), reduce_range);
  QTensor out = quantize_checked(kOp, x, qparams.scale, qparams.zero_point, dtype);
  scope.touches(x, x, out);  // once for the range
  return out;
}

namespace {

void dequantize_per_tensor(const QTensor& x, float* dst, cpu::Store store) {
  const auto scale = static_cast<float>(x.quantizer().scale);
  const auto zero_point = static_cast<std::int32_t>(x.quantizer().zero_point);
  cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    switch (x.dtype()) {
      case DType::QUInt8:
        cpu::dequantize(static_cast<const std::uint8_t*>(x.data_ptr()) + begin, dst + begin,
                        end - begin, scale, zero_point, store);
        return;
      case DType::QInt8:
        cpu::dequantize(static_cast<const std::int8_t*>(x.data_ptr()) + begin, dst + begin,
                        end - begin, scale, zero_point, store);
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

void dequantize_sub_byte_channels(const QTensor& x, float* dst) {
  const cpu::ChannelLayout layout(x, x.quantizer().axis);
  const ChannelQParams& channel = *x.quantizer().channel;
  const auto* src = static_cast<const std::uint8_t*>(x.data_ptr());
  const bool float_qparams = x.qscheme() == QScheme::PerChannelAffineFloatQParams;
  cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
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

// Both dense and of one memory order.
void dequantize_to(const QTensor& x, const Tensor& out) {
  auto* dst = static_cast<float*>(out.data_ptr());
  if (!x.is_per_channel()) {
    dequantize_per_tensor(x, dst, cpu::store_for(out.nbytes()));
  } else if (is_sub_byte(x.dtype())) {
    dequantize_sub_byte_channels(x, dst);
  } else {
    cpu::dequantize_channels(x, dst);
  }
}

}  // namespace

Tensor dequantize(const Tensor& x) {
  OpScope scope("dequantize");
  QUANTA_CHECK(x.defined(),
               "dequantize: x: expected a quantized or floating tensor, got an "
               "undefined one");
  if (!x.is_quantized()) {
    QUANTA_CHECK(x.is_floating_point(),
                 "dequantize: x: expected a quantized or floating tensor, got {}", x.dtype());
    scope.kernel("pass through");
    return x.dtype() == DType::Float32 ? x : x.to(DType::Float32);
  }
  scope.kernel("simd");
  const MemoryFormat format =
      is_sub_byte(x.dtype()) ? MemoryFormat::Contiguous : x.suggested_format();
  Tensor out = Tensor::empty(x.sizes(), DType::Float32, format);
  scope.touches(x, out);
  const QTensor dense(is_sub_byte(x.dtype()) ? x : x.contiguous(format));
  dequantize_to(dense, out);
  if (replay::is_recording()) {
    replay::record(
        {.op = "dequantize",
         .inputs = {dense},
         .outputs = {out},
         .run = [](const replay::Frame& f) { dequantize_to(QTensor(f.in()), f.out()); },
         .identity = "dequantize",
         .role = dense.is_per_channel() ? PlanUse::Role::Other : PlanUse::Role::Dequantize});
  }
  return out;
}

Tensor int_repr(const QTensor& x) {
  OpScope scope("int_repr");
  scope.kernel("copy");
  QUANTA_CHECK(x.defined(), "int_repr: x: expected a quantized tensor, got an undefined one");
  scope.maps(x);
  return x.int_repr_view().clone();
}

}  // namespace quanta
