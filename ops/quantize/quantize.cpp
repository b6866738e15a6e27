#include "quanta/ops/quantize.h"

#include <array>
#include <cmath>
#include <limits>

#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cuda/codes.h"
#include "quanta/ops/cuda/range.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/look_up.h"
#include "quanta/ops/quantize/cpu_codes.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

void check_float_input(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a Float32 tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::Float32, "{}: x: expected Float32, got {}", op, x.dtype());
}

// Sub-byte codes lie in one order only.
MemoryFormat format_of_codes(const Tensor& x, DType dtype) {
  return is_sub_byte(dtype) ? MemoryFormat::Contiguous : x.suggested_format();
}

// The result of quantizing x: checks the parameters.
void infer_codes(std::string_view op, const Tensor& x, DType dtype, const Quantizer& quantizer,
                 Results& out) {
  check_quantizer(op, quantizer, dtype, x.sizes());
  const MemoryFormat format = format_of_codes(x, dtype);
  out.arrange(0, format);
  out.add(x.sizes(), dtype, quantizer, format);
}

// What the operations from floats to codes share: codes have no gradient.
template <typename Derived>
struct Quantization : Op<Derived> {
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::quantize_tensor(in[0], out[0]);
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::quantize_tensor(in[0], out[0]);
    return "quantize_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
};

struct QuantizePerTensor final : Quantization<QuantizePerTensor> {
  static constexpr std::string_view kName = "quantize_per_tensor";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  double scale = 1.0;
  std::int64_t zero_point = 0;
  DType dtype = DType::QUInt8;

  QuantizePerTensor() = default;
  QuantizePerTensor(double one_scale, std::int64_t one_zero_point, DType codes)
      : scale(one_scale), zero_point(one_zero_point), dtype(codes) {}

  void infer(const Arguments& in, Results& out) const override {
    check_float_input(kName, in[0]);
    infer_codes(kName, in[0], dtype, Quantizer::per_tensor(scale, zero_point), out);
  }
  PlanUse plan_use(const Arguments&, std::span<const Tensor>) const override {
    return {.role = PlanUse::Role::Quantize};
  }
  std::shared_ptr<const Operation> with_codes(
      std::shared_ptr<const ByteTable> table) const override {
    return std::make_shared<detail::LookUp>(std::move(table));
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizePerTensor, &QuantizePerTensor::scale>("scale"),
        attribute<QuantizePerTensor, &QuantizePerTensor::zero_point>("zero_point"),
        attribute<QuantizePerTensor, &QuantizePerTensor::dtype>("dtype")};
    return kTable;
  }
};

template <typename T>
std::vector<T> copy_values(const Tensor& x, DType dtype) {
  const Tensor converted = x.to(dtype).contiguous().cpu();
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

// The parameters become part of the result, so that they have to be constants of a plan.
struct QuantizePerChannel final : Quantization<QuantizePerChannel> {
  static constexpr std::string_view kName = "quantize_per_channel";
  static constexpr ArgumentCount kArguments{3};
  std::int64_t axis = 0;
  DType dtype = DType::QInt8;

  QuantizePerChannel() = default;
  QuantizePerChannel(std::int64_t channel_axis, DType codes) : axis(channel_axis), dtype(codes) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const Tensor& scales = in[1];
    const Tensor& zero_points = in[2];
    check_float_input(kName, x);
    QUANTA_CHECK(is_quantized(dtype), "{}: dtype: expected a quantized dtype, got {}", kName,
                 dtype);
    QUANTA_CHECK(axis >= 0 && axis < x.dim(), "{}: axis: expected 0..{}, got {}", kName,
                 x.dim() - 1, axis);
    check_channel_vector("scales", scales, x.size(axis));
    check_channel_vector("zero_points", zero_points, x.size(axis));
    QUANTA_CHECK(scales.is_floating_point(), "{}: scales: expected a floating tensor, got {}",
                 kName, scales.dtype());
    const bool float_qparams = zero_points.is_floating_point();
    QUANTA_SUPPORTED(float_qparams || !is_sub_byte(dtype),
                     "{}: dtype: {} takes floating zero points only; integer ones work for "
                     "QUInt8, QInt8 and QInt32",
                     kName, dtype);
    out.reads_values(kName, scales);
    out.reads_values(kName, zero_points);
    const Quantizer quantizer =
        float_qparams
            ? Quantizer::per_channel_float_qparams(copy_values<float>(scales, DType::Float32),
                                                   copy_values<float>(zero_points, DType::Float32),
                                                   axis)
            : Quantizer::per_channel(copy_values<double>(scales, DType::Float64),
                                     copy_values<std::int64_t>(zero_points, DType::Int64), axis);
    infer_codes(kName, x, dtype, quantizer, out);
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizePerChannel, &QuantizePerChannel::axis>("axis"),
        attribute<QuantizePerChannel, &QuantizePerChannel::dtype>("dtype")};
    return kTable;
  }
};

// Waits for a CUDA device.
cpu::FloatRange range_of_dense(const Tensor& x) {
  if (x.device().is_cpu()) {
    return cpu::float_range(static_cast<const float*>(x.data_ptr()), x.numel());
  }
  const cuda::RangeOfFloats range =
      cuda::range_of(x.device(), reinterpret_cast<const float*>(x.device_ptr()), x.numel());
  return {range.min, range.max};
}

// What choosing parameters for x needs to know of it, which is not the same in every run of a plan.
cpu::FloatRange find_range(std::string_view op, const Tensor& x, Results& out) {
  check_float_input(op, x);
  out.reads_values(op, x);
  if (x.numel() == 0) return {0.0F, 0.0F};
  const Tensor dense = x.contiguous(x.suggested_format());
  const cpu::FloatRange range = range_of_dense(dense);
  QUANTA_CHECK(std::isfinite(range.min) && std::isfinite(range.max),
               "{}: x: expected finite values, got a range of {}..{}", op, range.min, range.max);
  return range;
}

struct QuantizePerTensorDynamic final : Quantization<QuantizePerTensorDynamic> {
  static constexpr std::string_view kName = "quantize_per_tensor_dynamic";
  static constexpr ArgumentCount kArguments{1};
  DType dtype = DType::QInt8;
  bool reduce_range = false;

  QuantizePerTensorDynamic() = default;
  QuantizePerTensorDynamic(DType result, bool reduce) : dtype(result), reduce_range(reduce) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(is_cast() || dtype == DType::QUInt8 || dtype == DType::QInt8,
                 "{}: dtype: expected QUInt8, QInt8 or Float16, got {}", kName, dtype);
    if (is_cast()) {
      check_float_input(kName, x);
      return out.add(x.sizes(), dtype, x.suggested_format());
    }
    const cpu::FloatRange range = find_range(kName, x, out);
    const math::QParams qparams =
        choose_qparams(range.min, range.max, quant_range(dtype), reduce_range);
    infer_codes(kName, x, dtype, Quantizer::per_tensor(qparams.scale, qparams.zero_point), out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (!is_cast()) return Quantization::cpu(in, out);
    out[0].copy_(in[0]);
    return "cast";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if (!is_cast()) return Quantization::cuda(in, out);
    out[0].copy_(in[0]);
    return "cast";
  }
  GradientUse gradient_use(std::uint64_t) const override {
    return is_cast() ? GradientUse::of(0) : GradientUse::none();
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {context.grad().to(context.input_dtype(0))};
  }
  // x is read once more for its range.
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    OpWork work = Operation::work(in, out);
    if (!is_cast()) work.bytes += static_cast<std::int64_t>(in[0].nbytes());
    return work;
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizePerTensorDynamic, &QuantizePerTensorDynamic::dtype>("dtype"),
        attribute<QuantizePerTensorDynamic, &QuantizePerTensorDynamic::reduce_range>(
            "reduce_range")};
    return kTable;
  }

 private:
  bool is_cast() const { return dtype == DType::Float16; }
};

void check_dequantizable(const Tensor& x, bool of_codes) {
  QUANTA_CHECK(x.defined(),
               "dequantize: x: expected a quantized or floating tensor, got an undefined one");
  QUANTA_CHECK(of_codes ? x.is_quantized() : x.is_floating_point(),
               "dequantize: x: expected a quantized or floating tensor, got {}", x.dtype());
}

struct Dequantize final : Op<Dequantize> {
  static constexpr std::string_view kName = "dequantize";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_dequantizable(x, true);
    const MemoryFormat format = format_of_codes(x, x.dtype());
    if (!is_sub_byte(x.dtype())) out.arrange(0, format);
    out.add(x.sizes(), DType::Float32, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::dequantize_tensor(in[0], out[0]);
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::dequantize_tensor(in[0], out[0]);
    return "dequantize_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQuantized; }
  PlanUse plan_use(const Arguments& in, std::span<const Tensor>) const override {
    return {.role = is_per_channel(in[0].impl()->quantizer.scheme) ? PlanUse::Role::Other
                                                                   : PlanUse::Role::Dequantize};
  }
};

// Floats are no codes: they are only made Float32.
struct DequantizeFloats final : ComposedOp<DequantizeFloats> {
  static constexpr std::string_view kName = Dequantize::kName;
  static constexpr ArgumentCount kArguments{1};
  std::vector<Tensor> compose(const Arguments& in) const override {
    check_dequantizable(in[0], false);
    return {in[0].to(DType::Float32)};
  }
};

struct IntRepr final : Op<IntRepr> {
  static constexpr std::string_view kName = "int_repr";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(x.defined(), "int_repr: x: expected a quantized tensor, got an undefined one");
    QUANTA_CHECK(x.is_quantized(), "int_repr: x: expected a quantized tensor, got {}", x.dtype());
    const Tensor codes = QTensor(x).int_repr_view();
    if (codes.is_dense()) {
      out.add_like(codes, codes.sizes(), codes.strides());
    } else {
      out.add(codes.sizes(), codes.dtype(), codes.suggested_format());
    }
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    copy_result(QTensor(in[0]).int_repr_view(), out[0]);
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu(in, out);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQuantized; }
};

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

}  // namespace

QTensor quantize_per_tensor(const Tensor& x, double scale, std::int64_t zero_point, DType dtype) {
  return QTensor(run(QuantizePerTensor{scale, zero_point, dtype}, x));
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
  return QTensor(run(QuantizePerChannel{axis, dtype}, x, scales, zero_points));
}

math::QParams choose_qparams(float min, float max, IntRange range, bool reduce_range) {
  QUANTA_CHECK(min <= max, "choose_qparams: min: expected min <= max, got {} and {}", min, max);
  QUANTA_CHECK(std::isfinite(min) && std::isfinite(max),
               "choose_qparams: min: expected a finite range, got {} and {}", min, max);
  QUANTA_CHECK(range.min < range.max && range.min >= std::numeric_limits<std::int32_t>::min() / 2 &&
                   range.max <= std::numeric_limits<std::int32_t>::max() / 2,
               "choose_qparams: range: expected min < max within 31 bits, got {}..{}", range.min,
               range.max);
  math::ChooseOptions options;
  options.reduce_range = reduce_range;
  return math::choose_qparams(min, max, static_cast<std::int32_t>(range.min),
                              static_cast<std::int32_t>(range.max), options);
}

math::QParams choose_qparams_per_tensor(const Tensor& x, bool reduce_range) {
  Results none;  // no tensor comes out
  const cpu::FloatRange range = find_range("choose_qparams_per_tensor", x, none);
  return choose_qparams(range.min, range.max, quant_range(DType::QUInt8), reduce_range);
}

Tensor quantize_per_tensor_dynamic(const Tensor& x, DType dtype, bool reduce_range) {
  return run(QuantizePerTensorDynamic{dtype, reduce_range}, x);
}

Tensor dequantize(const Tensor& x) {
  if (x.defined() && x.is_floating_point()) return run(DequantizeFloats{}, x);
  return run(Dequantize{}, x);
}

Tensor int_repr(const QTensor& x) { return run(IntRepr{}, x); }

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/quantize.h";

Tensor sample_image(DType dtype) { return sample_tensor({2, 3, 5, 4}, dtype); }

}  // namespace

void detail::add_quantize(Catalogue& catalogue) {
  catalogue.add(
      {.name = QuantizePerTensor::kName, .header = kHeader, .dtypes = dtypes::kFloat},
      [](DType dtype) {
        return sample_call(QuantizePerTensor{0.05, 120, DType::QUInt8}, {sample_image(dtype)});
      });
  catalogue.add({.name = QuantizePerChannel::kName, .header = kHeader, .dtypes = dtypes::kFloat},
                [](DType dtype) {
                  return sample_call(
                      QuantizePerChannel{1, DType::QInt8},
                      {sample_image(dtype), Tensor::from_values({0.03F, 0.05F, 0.1F}),
                       Tensor::zeros({3}, DType::Int64)});
                });
  catalogue.add(
      {.name = QuantizePerTensorDynamic::kName, .header = kHeader, .dtypes = dtypes::kFloat},
      [](DType dtype) {
        return sample_call(QuantizePerTensorDynamic{DType::QUInt8, true}, {sample_image(dtype)});
      });
  catalogue.add({.name = Dequantize::kName, .header = kHeader, .dtypes = dtypes::kDequantized},
                [](DType dtype) {
                  return is_quantized(dtype)
                             ? sample_call(Dequantize{}, {sample_image(dtype)})
                             : sample_call(DequantizeFloats{}, {sample_image(dtype)});
                });
  catalogue.add({.name = IntRepr::kName, .header = kHeader, .dtypes = dtypes::kQuantized},
                [](DType dtype) { return sample_call(IntRepr{}, {sample_image(dtype)}); });
}

}  // namespace quanta
