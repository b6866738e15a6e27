#include "quanta/ops/factory.h"

#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

Quantizer channel_quantizer(std::string_view op, const Tensor& scales, const Tensor& zero_points,
                            std::int64_t axis) {
  detail::check_defined(op, "scales", scales);
  detail::check_defined(op, "zero_points", zero_points);
  QUANTA_CHECK(scales.is_floating_point() && scales.dim() == 1,
               "{}: scales: expected a floating tensor with 1 dimension, got {} {}", op,
               scales.dtype(), scales.sizes());
  QUANTA_CHECK(
      !zero_points.is_quantized() && zero_points.dtype() != DType::Bool && zero_points.dim() == 1,
      "{}: zero_points: expected an integer or floating tensor with 1 dimension, got {} {}", op,
      zero_points.dtype(), zero_points.sizes());
  if (zero_points.is_floating_point()) {
    return Quantizer::per_channel_float_qparams(scales.to_float_vector(),
                                                zero_points.to_float_vector(), axis);
  }
  const Tensor exact = scales.to(DType::Float64).contiguous();
  const auto* first = static_cast<const double*>(exact.data_ptr());
  return Quantizer::per_channel(std::vector<double>(first, first + exact.numel()),
                                zero_points.to_int64_vector(), axis);
}

// A copy of codes that a quantized dtype exists for.
Tensor copied_codes(std::string_view op, const Tensor& codes) {
  detail::check_defined(op, "codes", codes);
  QUANTA_CHECK(codes.dtype() == DType::UInt8 || codes.dtype() == DType::Int8 ||
                   codes.dtype() == DType::Int32,
               "{}: codes: expected UInt8, Int8 or Int32, got {}", op, codes.dtype());
  return codes.clone();
}

}  // namespace

QTensor make_per_tensor_quantized_tensor(const Tensor& codes, double scale,
                                         std::int64_t zero_point) {
  constexpr std::string_view kOp = "make_per_tensor_quantized_tensor";
  const Tensor copy = copied_codes(kOp, codes);
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  check_quantizer(kOp, quantizer, quantized_dtype(codes.dtype()), codes.sizes());
  return QTensor::from_int_repr(copy, quantizer);
}

QTensor make_per_channel_quantized_tensor(const Tensor& codes, const Tensor& scales,
                                          const Tensor& zero_points, std::int64_t axis) {
  constexpr std::string_view kOp = "make_per_channel_quantized_tensor";
  const Tensor copy = copied_codes(kOp, codes);
  const Quantizer quantizer = channel_quantizer(kOp, scales, zero_points, axis);
  check_quantizer(kOp, quantizer, quantized_dtype(codes.dtype()), codes.sizes());
  return QTensor::from_int_repr(copy, quantizer);
}

QTensor empty_quantized(const Dims& sizes, const QTensor& qtensor, MemoryFormat format) {
  constexpr std::string_view kOp = "empty_quantized";
  detail::check_defined(kOp, "qtensor", qtensor);
  check_quantizer(kOp, qtensor.quantizer(), qtensor.dtype(), sizes);
  return QTensor::empty(sizes, qtensor.dtype(), qtensor.quantizer(), format);
}

QTensor empty_affine_quantized(const Dims& sizes, double scale, std::int64_t zero_point,
                               DType dtype, MemoryFormat format) {
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  check_quantizer("empty_affine_quantized", quantizer, dtype, sizes);
  return QTensor::empty(sizes, dtype, quantizer, format);
}

QTensor empty_per_channel_affine_quantized(const Dims& sizes, const Tensor& scales,
                                           const Tensor& zero_points, std::int64_t axis,
                                           DType dtype, MemoryFormat format) {
  constexpr std::string_view kOp = "empty_per_channel_affine_quantized";
  const Quantizer quantizer = channel_quantizer(kOp, scales, zero_points, axis);
  check_quantizer(kOp, quantizer, dtype, sizes);
  return QTensor::empty(sizes, dtype, quantizer, format);
}

Tensor empty_like(const Tensor& x) {
  detail::check_defined("empty_like", "x", x);
  return detail::empty_with_parameters_of(x, x.sizes(), x.suggested_format());
}

Tensor ones_like(const Tensor& x) {
  detail::check_defined("ones_like", "x", x);
  const Tensor result = empty_like(x);
  result.fill_(1.0);
  return result;
}

}  // namespace quanta
