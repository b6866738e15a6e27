#include "quanta/ops/factory.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace {

// A quantizer holds its numbers on the host.
Tensor on_host(const Tensor& x) { return x.device().is_cpu() ? x : x.cpu(); }

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
    return Quantizer::per_channel_float_qparams(on_host(scales).to_float_vector(),
                                                on_host(zero_points).to_float_vector(), axis);
  }
  const Tensor exact = on_host(scales).to(DType::Float64).contiguous();
  const auto* first = static_cast<const double*>(exact.data_ptr());
  return Quantizer::per_channel(std::vector<double>(first, first + exact.numel()),
                                on_host(zero_points).to_int64_vector(), axis);
}

// Undefined codes where `device` is, under parameters that fit.
QTensor empty_codes(const Dims& sizes, DType dtype, const Quantizer& quantizer, MemoryFormat format,
                    Device device) {
  if (device.is_cpu()) return QTensor::empty(sizes, dtype, quantizer, format);
  if (is_sub_byte(dtype)) {
    const auto bytes = static_cast<std::int64_t>(storage_bytes(dtype, checked_numel(sizes)));
    return QTensor::from_packed_bytes(
        Tensor::empty({bytes}, DType::UInt8, MemoryFormat::Contiguous, device), sizes, dtype,
        quantizer);
  }
  return QTensor::from_int_repr(Tensor::empty(sizes, int_repr_dtype(dtype), format, device),
                                quantizer);
}

void check_codes(std::string_view op, const Tensor& codes) {
  detail::check_defined(op, "codes", codes);
  QUANTA_CHECK(codes.dtype() == DType::UInt8 || codes.dtype() == DType::Int8 ||
                   codes.dtype() == DType::Int32,
               "{}: codes: expected UInt8, Int8 or Int32, got {}", op, codes.dtype());
}

// The codes again, under parameters.
Tensor labelled(std::string_view op, const Tensor& codes, const Quantizer& quantizer) {
  check_quantizer(op, quantizer, quantized_dtype(codes.dtype()), codes.sizes());
  return QTensor::from_int_repr(codes.clone(), quantizer);
}

struct MakePerTensor final : ComposedOp<MakePerTensor> {
  static constexpr std::string_view kName = "make_per_tensor_quantized_tensor";
  static constexpr ArgumentCount kArguments{1};
  double scale = 1.0;
  std::int64_t zero_point = 0;

  MakePerTensor() = default;
  MakePerTensor(double step, std::int64_t zero) : scale(step), zero_point(zero) {}

  std::vector<Tensor> compose(const Arguments& in) const override {
    check_codes(kName, in[0]);
    return {labelled(kName, in[0], Quantizer::per_tensor(scale, zero_point))};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kCodes; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<MakePerTensor, &MakePerTensor::scale>("scale"),
        attribute<MakePerTensor, &MakePerTensor::zero_point>("zero_point")};
    return kTable;
  }
};

// Codes, scales, zero points.
struct MakePerChannel final : ComposedOp<MakePerChannel> {
  static constexpr std::string_view kName = "make_per_channel_quantized_tensor";
  static constexpr ArgumentCount kArguments{3};
  std::int64_t axis = 0;

  MakePerChannel() = default;
  explicit MakePerChannel(std::int64_t dimension) : axis(dimension) {}

  std::vector<Tensor> compose(const Arguments& in) const override {
    check_codes(kName, in[0]);
    return {labelled(kName, in[0], channel_quantizer(kName, in[1], in[2], axis))};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kCodes; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<MakePerChannel, &MakePerChannel::axis>("axis")};
    return kTable;
  }
};

// Nothing is calculated: a recording has nothing to replay.
struct EmptyQuantized final : ComposedOp<EmptyQuantized> {
  static constexpr std::string_view kName = "empty_quantized";
  static constexpr ArgumentCount kArguments{1};
  Dims sizes;
  MemoryFormat format = MemoryFormat::Contiguous;

  EmptyQuantized() = default;
  EmptyQuantized(const Dims& wanted, MemoryFormat order) : sizes(wanted), format(order) {}

  std::vector<Tensor> compose(const Arguments& in) const override {
    const QTensor like = in[0].as_quantized(kName, "qtensor");
    check_quantizer(kName, like.quantizer(), like.dtype(), sizes);
    return {empty_codes(sizes, like.dtype(), like.quantizer(), format, like.device())};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQuantized; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<EmptyQuantized, &EmptyQuantized::sizes>("sizes"),
        attribute<EmptyQuantized, &EmptyQuantized::format>("memory_format")};
    return kTable;
  }
};

}  // namespace

QTensor make_per_tensor_quantized_tensor(const Tensor& codes, double scale,
                                         std::int64_t zero_point) {
  return QTensor(run(MakePerTensor{scale, zero_point}, codes));
}

QTensor make_per_channel_quantized_tensor(const Tensor& codes, const Tensor& scales,
                                          const Tensor& zero_points, std::int64_t axis) {
  return QTensor(run(MakePerChannel{axis}, codes, scales, zero_points));
}

QTensor empty_quantized(const Dims& sizes, const QTensor& qtensor, MemoryFormat format) {
  return QTensor(run(EmptyQuantized{sizes, format}, qtensor));
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
  return empty_codes(sizes, dtype, quantizer, format, scales.device());
}

Tensor empty_like(const Tensor& x) {
  detail::check_defined("empty_like", "x", x);
  const MemoryFormat format = x.suggested_format();
  if (!x.is_quantized()) return Tensor::empty(x.sizes(), x.dtype(), format, x.device());
  return empty_codes(x.sizes(), x.dtype(), QTensor(x).quantizer(), format, x.device());
}

Tensor ones_like(const Tensor& x) {
  detail::check_defined("ones_like", "x", x);
  const Tensor result = empty_like(x);
  result.fill_(1.0);
  return result;
}

Tensor zeros_like(const Tensor& x) { return full_like(x, 0.0); }

Tensor full_like(const Tensor& x, double value) {
  detail::check_defined("full_like", "x", x);
  const Tensor result = empty_like(x);
  result.fill_(value);
  return result;
}

Tensor linspace(double start, double end, std::int64_t steps, DType dtype) {
  QUANTA_CHECK(steps >= 0, "linspace: steps: expected a number >= 0, got {}", steps);
  QUANTA_CHECK(is_floating_point(dtype), "linspace: dtype: expected a floating point dtype, got {}",
               dtype);
  std::vector<double> values(static_cast<std::size_t>(steps));
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0.0;
  // From both ends, as torch does, so that the last one is `end`.
  for (std::int64_t i = 0; i < steps; ++i) {
    values[static_cast<std::size_t>(i)] = i == 0 || i < steps / 2
                                              ? start + step * static_cast<double>(i)
                                              : end - step * static_cast<double>(steps - 1 - i);
  }
  const Tensor result = Tensor::from_span(values);
  return dtype == DType::Float64 ? result : result.to(dtype);
}

void detail::add_factory(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/factory.h";
  catalogue.add({.name = MakePerTensor::kName, .header = kHeader, .dtypes = dtypes::kCodes},
                [](DType dtype) {
                  return sample_call(MakePerTensor{0.1, 1}, {sample_tensor({2, 3}, dtype)});
                });
  catalogue.add({.name = MakePerChannel::kName, .header = kHeader, .dtypes = dtypes::kCodes},
                [](DType dtype) {
                  return sample_call(MakePerChannel{0},
                                     {sample_tensor({2, 3}, dtype), Tensor::ones({2}),
                                      Tensor::zeros({2}, DType::Int64)});
                });
  catalogue.add({.name = EmptyQuantized::kName, .header = kHeader, .dtypes = dtypes::kQuantized},
                [](DType dtype) {
                  return sample_call(EmptyQuantized{{3}, MemoryFormat::Contiguous},
                                     {sample_tensor({2, 4}, dtype)});
                });
}

}  // namespace quanta
