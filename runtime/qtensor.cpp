#include <cmath>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/tensor.h"

namespace quanta {
namespace {

Tensor view_as(const Tensor& x, const Dims& sizes, const Dims& strides, DType dtype,
               const Quantizer& quantizer) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->storage = x.storage();
  impl->data = x.impl()->data;
  impl->sizes = sizes;
  impl->strides = strides;
  impl->numel = product(sizes);
  impl->dtype = dtype;
  impl->device = x.device();
  impl->quantizer = quantizer;
  return Tensor(std::move(impl));
}

void check_scale(std::string_view op, double scale) {
  // Checked as float32, which is what the arithmetic uses.
  const auto rounded = static_cast<float>(scale);
  QUANTA_CHECK(std::isfinite(rounded) && rounded > 0.0F,
               "{}: scale: expected a finite number > 0 (in float32), got {}", op, scale);
}

void check_zero_point(std::string_view op, std::int64_t zero_point, DType dtype) {
  const IntRange range = quant_range(dtype);
  QUANTA_CHECK(zero_point >= range.min && zero_point <= range.max,
               "{}: zero_point: expected {}..{} for {}, got {}", op, range.min, range.max, dtype,
               zero_point);
}

}  // namespace

void check_quantizer(std::string_view op, const Quantizer& quantizer, DType dtype,
                     const Dims& sizes) {
  QUANTA_CHECK(is_quantized(dtype), "{}: dtype: expected a quantized dtype, got {}", op, dtype);
  switch (quantizer.scheme) {
    case QScheme::PerTensorAffine:
      check_scale(op, quantizer.scale);
      check_zero_point(op, quantizer.zero_point, dtype);
      return;
    case QScheme::PerChannelAffine:
    case QScheme::PerChannelAffineFloatQParams:
      break;
    case QScheme::PerTensorSymmetric:
    case QScheme::PerChannelSymmetric:
      throw ArgumentError(fmt::format(
          "{}: scheme: expected an affine scheme (symmetric ones configure observers), got {}", op,
          quantizer.scheme));
  }
  const auto rank = static_cast<std::int64_t>(sizes.size());
  QUANTA_CHECK(quantizer.axis >= 0 && quantizer.axis < rank, "{}: axis: expected 0..{}, got {}", op,
               rank - 1, quantizer.axis);
  QUANTA_CHECK(quantizer.channel != nullptr, "{}: scales: expected one for each channel, got none",
               op);
  const auto channels = static_cast<std::size_t>(sizes[static_cast<std::size_t>(quantizer.axis)]);
  const ChannelQParams& channel = *quantizer.channel;
  const bool is_float = quantizer.scheme == QScheme::PerChannelAffineFloatQParams;
  const std::size_t zero_points =
      is_float ? channel.float_zero_points.size() : channel.zero_points.size();
  QUANTA_CHECK(channel.scales.size() == channels,
               "{}: scales: expected {} for axis {} of {}, got {}", op, channels, quantizer.axis,
               sizes, channel.scales.size());
  QUANTA_CHECK(zero_points == channels, "{}: zero_points: expected {} for axis {} of {}, got {}",
               op, channels, quantizer.axis, sizes, zero_points);
  for (const double scale : channel.scales) {
    if (is_float) {
      QUANTA_CHECK(std::isfinite(scale), "{}: scales: expected finite numbers, got {}", op, scale);
    } else {
      check_scale(op, scale);
    }
  }
  for (const float zero_point : channel.float_zero_points) {
    QUANTA_CHECK(std::isfinite(zero_point), "{}: zero_points: expected finite numbers, got {}", op,
                 zero_point);
  }
  for (const std::int64_t zero_point : channel.zero_points) check_zero_point(op, zero_point, dtype);
}

QTensor Tensor::as_quantized(std::string_view op, std::string_view argument) const {
  QUANTA_CHECK(defined(), "{}: {}: expected a quantized tensor, got an undefined one", op,
               argument);
  QUANTA_CHECK(is_quantized(),
               "{}: {}: expected a quantized tensor (is a QuantStub missing?), got {}", op,
               argument, dtype());
  return QTensor(*this);
}

QTensor::QTensor(Tensor tensor) : Tensor(std::move(tensor)) {
  QUANTA_CHECK(defined(), "QTensor: tensor: expected a quantized tensor, got an undefined one");
  QUANTA_CHECK(is_quantized(), "QTensor: tensor: expected a quantized tensor, got {}", dtype());
}

QTensor QTensor::empty(const Dims& sizes, double scale, std::int64_t zero_point, DType dtype,
                       MemoryFormat format) {
  return empty(sizes, dtype, Quantizer::per_tensor(scale, zero_point), format);
}

QTensor QTensor::empty(const Dims& sizes, DType dtype, const Quantizer& quantizer,
                       MemoryFormat format) {
  check_quantizer("QTensor::empty", quantizer, dtype, sizes);
  const std::int64_t numel = checked_numel(sizes);
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->storage = IntrusivePtr<Storage>(new Storage(storage_bytes(dtype, numel), Device::cpu()));
  impl->data = impl->storage->data();
  impl->sizes = sizes;
  impl->strides = contiguous_strides(sizes, is_sub_byte(dtype) ? MemoryFormat::Contiguous : format);
  impl->numel = numel;
  impl->dtype = dtype;
  impl->quantizer = quantizer;
  return QTensor(Tensor(std::move(impl)));
}

QTensor QTensor::from_int_repr(const Tensor& codes, const Quantizer& quantizer) {
  QUANTA_CHECK(codes.defined(), "from_int_repr: codes: expected a tensor, got an undefined one");
  const DType dtype = quantized_dtype(codes.dtype());
  check_quantizer("from_int_repr", quantizer, dtype, codes.sizes());
  return QTensor(view_as(codes, codes.sizes(), codes.strides(), dtype, quantizer));
}

QTensor QTensor::from_packed_bytes(const Tensor& packed, const Dims& sizes, DType dtype,
                                   const Quantizer& quantizer) {
  QUANTA_CHECK(is_sub_byte(dtype),
               "from_packed_bytes: dtype: expected QUInt4x2 or QUInt2x4, got {}", dtype);
  QUANTA_CHECK(packed.defined() && packed.dtype() == DType::UInt8,
               "from_packed_bytes: packed: expected UInt8 bytes");
  const std::size_t bytes = storage_bytes(dtype, checked_numel(sizes));
  QUANTA_CHECK(static_cast<std::size_t>(packed.numel()) >= bytes,
               "from_packed_bytes: packed: expected at least {} bytes for {} {}, got {}", bytes,
               dtype, sizes, packed.numel());
  check_quantizer("from_packed_bytes", quantizer, dtype, sizes);
  return QTensor(view_as(packed.contiguous(), sizes, contiguous_strides(sizes), dtype, quantizer));
}

double QTensor::q_scale() const {
  detail::require_tensor("q_scale", *this);
  QUANTA_CHECK(!is_per_channel(), "q_scale: x: expected a per-tensor quantized tensor, got {}",
               qscheme());
  return quantizer().scale;
}

std::int64_t QTensor::q_zero_point() const {
  detail::require_tensor("q_zero_point", *this);
  QUANTA_CHECK(!is_per_channel(), "q_zero_point: x: expected a per-tensor quantized tensor, got {}",
               qscheme());
  return quantizer().zero_point;
}

Tensor QTensor::q_per_channel_scales() const {
  detail::require_tensor("q_per_channel_scales", *this);
  QUANTA_CHECK(is_per_channel(),
               "q_per_channel_scales: x: expected a per-channel quantized tensor, got {}",
               qscheme());
  const std::vector<double>& scales = quantizer().channel->scales;
  Tensor result = Tensor::empty({static_cast<std::int64_t>(scales.size())}, DType::Float64);
  std::copy(scales.begin(), scales.end(), result.mutable_data<double>());
  return qscheme() == QScheme::PerChannelAffine ? result : result.to(DType::Float32);
}

Tensor QTensor::q_per_channel_zero_points() const {
  detail::require_tensor("q_per_channel_zero_points", *this);
  QUANTA_CHECK(is_per_channel(),
               "q_per_channel_zero_points: x: expected a per-channel quantized tensor, got {}",
               qscheme());
  const ChannelQParams& channel = *quantizer().channel;
  if (qscheme() == QScheme::PerChannelAffine) return from_int64(channel.zero_points);
  return from_values(channel.float_zero_points,
                     {static_cast<std::int64_t>(channel.float_zero_points.size())});
}

std::int64_t QTensor::q_per_channel_axis() const {
  detail::require_tensor("q_per_channel_axis", *this);
  QUANTA_CHECK(is_per_channel(),
               "q_per_channel_axis: x: expected a per-channel quantized tensor, got {}", qscheme());
  return quantizer().axis;
}

Tensor QTensor::int_repr_view() const {
  detail::require_tensor("int_repr_view", *this);
  const DType plain = int_repr_dtype(dtype());
  if (is_sub_byte(dtype())) {
    const Dims flat{static_cast<std::int64_t>(nbytes())};
    return view_as(*this, flat, contiguous_strides(flat), plain, Quantizer{});
  }
  return view_as(*this, sizes(), strides(), plain, Quantizer{});
}

QTensor QTensor::with_quantizer(const Quantizer& quantizer) const {
  detail::require_tensor("with_quantizer", *this);
  check_quantizer("with_quantizer", quantizer, dtype(), sizes());
  return QTensor(view_as(*this, sizes(), strides(), dtype(), quantizer));
}

}  // namespace quanta
