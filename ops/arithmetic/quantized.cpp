#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/arithmetic/code_operands.h"
#include "quanta/ops/arithmetic/families.h"
#include "quanta/ops/arithmetic_quantized.h"
#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/codes.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/look_up.h"
#include "quanta/runtime/check.h"

// Sums and products of codes, of two tensors or of one and a number.

namespace quanta {
namespace arithmetic {

void infer_code_binary(std::string_view op, const Tensor& lhs, const Tensor& rhs, double scale,
                       std::int64_t zero_point, Results& out) {
  cpu::check_per_tensor(op, "lhs", lhs);
  cpu::check_per_tensor(op, "rhs", rhs);
  QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", op,
               lhs.dtype(), rhs.dtype());
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  if (lhs.sizes() == rhs.sizes()) {
    check_quantizer(op, quantizer, lhs.dtype(), lhs.sizes());
    out.add(lhs.sizes(), lhs.dtype(), quantizer, lhs.suggested_format());
    return;
  }
  const Dims sizes = broadcast_sizes(lhs.sizes(), rhs.sizes(), op);
  check_quantizer(op, quantizer, lhs.dtype(), sizes);
  out.add(sizes, lhs.dtype(), quantizer, cpu::broadcast_format(lhs, rhs, sizes));
}

namespace {

enum class Relu : bool { No, Yes };
enum class CodeBinary : std::uint8_t { Add, Sub, Mul };

constexpr std::string_view named(CodeBinary kind, Relu relu, std::string_view add,
                                 std::string_view add_relu, std::string_view mul,
                                 std::string_view mul_relu) {
  if (kind == CodeBinary::Sub) return "quantized::sub";
  if (kind == CodeBinary::Add) return relu == Relu::Yes ? add_relu : add;
  return relu == Relu::Yes ? mul_relu : mul;
}

// Of two tensors -------------------------------------------------------------------------------

// Negative numbers from a negated scale: what sub makes of its second operand.
cpu::ScalarDequantizer dequantizer(const Tensor& x, bool negated) {
  cpu::ScalarDequantizer result(x);
  if (negated) {
    result.scale = -result.scale;
    result.offset = -result.offset;
  }
  return result;
}

// The terms of a sum, which may be negated.
struct Terms {
  cpu::ScalarDequantizer lhs, rhs;
};

// torch's order of roundings: (sa * sb) * (1 / s), each step in float32.
cpu::MulArgs mul_args(const Tensor& lhs, const Tensor& rhs, const cpu::ScalarQuantizer& quantizer) {
  const Quantizer& left = lhs.impl()->quantizer;
  const Quantizer& right = rhs.impl()->quantizer;
  cpu::MulArgs args{static_cast<std::int32_t>(left.zero_point),
                    static_cast<std::int32_t>(right.zero_point), quantizer.args()};
  args.out.inv_scale =
      static_cast<float>(left.scale) * static_cast<float>(right.scale) * quantizer.inv_scale;
  return args;
}

template <typename T>
void add_codes(const Tensor& lhs, const Tensor& rhs, const Tensor& out, const Terms& terms,
               const cpu::ScalarQuantizer& quantizer) {
  const cpu::ScalarDequantizer& left = terms.lhs;
  const cpu::ScalarDequantizer& right = terms.rhs;
  const cpu::AddArgs args{left.scale, left.offset, right.scale, right.offset, quantizer.args()};
  cpu::broadcast_binary<T>(
      lhs, rhs, out,
      [&](const T* left_row, const T* right_row, T* dst, std::int64_t count, cpu::Rhs kind,
          cpu::Store) {
        if constexpr (sizeof(T) == 1) {
          cpu::add(left_row, right_row, dst, count, args, kind);
        } else {
          const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
          for (std::int64_t i = 0; i < count; ++i) {
            dst[i] = quantizer(left(left_row[i]) + right(right_row[i * step]));
          }
        }
      },
      [&](const T* left_rows, const T* right_row, T* dst, std::int64_t rows, std::int64_t count) {
        if constexpr (sizeof(T) == 1) {
          cpu::add_channels(left_rows, right_row, dst, rows, count, args);
        } else {
          for (std::int64_t i = 0; i < rows * count; ++i) {
            dst[i] = quantizer(left(left_rows[i]) + right(right_row[i % count]));
          }
        }
      });
}

template <typename T>
void mul_codes(const Tensor& lhs, const Tensor& rhs, const Tensor& out,
               const cpu::ScalarQuantizer& quantizer) {
  const cpu::MulArgs args = mul_args(lhs, rhs, quantizer);
  const auto one = [&](T left, T right) {
    const std::int64_t product = cpu::saturating_product(std::int64_t{left} - args.lhs_zero_point,
                                                         std::int64_t{right} - args.rhs_zero_point);
    return std::max(quantizer.min,
                    math::requantize_qint32(product, args.out.inv_scale, quantizer.zero_point));
  };
  cpu::broadcast_binary<T>(
      lhs, rhs, out,
      [&](const T* left_row, const T* right_row, T* dst, std::int64_t count, cpu::Rhs kind,
          cpu::Store) {
        if constexpr (sizeof(T) == 1) {
          cpu::mul(left_row, right_row, dst, count, args, kind);
        } else {
          const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
          for (std::int64_t i = 0; i < count; ++i) dst[i] = one(left_row[i], right_row[i * step]);
        }
      },
      [&](const T* left_rows, const T* right_row, T* dst, std::int64_t rows, std::int64_t count) {
        if constexpr (sizeof(T) == 1) {
          cpu::mul_channels(left_rows, right_row, dst, rows, count, args);
        } else {
          for (std::int64_t i = 0; i < rows * count; ++i) {
            dst[i] = one(left_rows[i], right_row[i % count]);
          }
        }
      });
}

// Gives the name of the kernel. The operands may be swapped: sum (of negated terms too) and product
// are the same either way round, and the kernels want the broadcast one on the right.
std::string_view run_code_binary(CodeBinary kind, const Tensor& lhs, const Tensor& rhs,
                                 const Tensor& out, Relu relu) {
  const bool is_swapped = lhs.numel() < rhs.numel();
  const Tensor& left = is_swapped ? rhs : lhs;
  const Tensor& right = is_swapped ? lhs : rhs;
  const bool is_difference = kind == CodeBinary::Sub;
  cpu::ScalarQuantizer quantizer(out);
  if (relu == Relu::Yes) quantizer.min = quantizer.zero_point;
  const auto calculate = [&](auto code) {
    using T = decltype(code);
    if (kind == CodeBinary::Mul) {
      mul_codes<T>(left, right, out, quantizer);
    } else {
      const Terms terms{dequantizer(left, is_difference && is_swapped),
                        dequantizer(right, is_difference && !is_swapped)};
      add_codes<T>(left, right, out, terms, quantizer);
    }
  };
  switch (lhs.dtype()) {
    case DType::QUInt8:
      calculate(std::uint8_t{});
      return "simd";
    case DType::QInt8:
      calculate(std::int8_t{});
      return "simd";
    default:
      calculate(std::int32_t{});
      return "reference";
  }
}

cuda::CodeBinaryParams combine_params(CodeBinary kind, const Tensor& lhs, const Tensor& rhs,
                                      const Tensor& out, Relu relu) {
  const cpu::ScalarQuantizer quantizer(out);
  const cpu::ScalarDequantizer left(lhs);
  const cpu::ScalarDequantizer right = dequantizer(rhs, kind == CodeBinary::Sub);
  const cpu::MulArgs product = mul_args(lhs, rhs, quantizer);
  cuda::CodeBinaryParams params;
  cuda::set_places(params, lhs, rhs, out);
  params.is_product = kind == CodeBinary::Mul;
  params.lhs_scale = left.scale;
  params.lhs_offset = left.offset;
  params.rhs_scale = right.scale;
  params.rhs_offset = right.offset;
  params.lhs_zero_point = product.lhs_zero_point;
  params.rhs_zero_point = product.rhs_zero_point;
  params.inv_scale = params.is_product ? product.out.inv_scale : quantizer.inv_scale;
  params.zero_point = quantizer.zero_point;
  params.low = relu == Relu::Yes ? quantizer.zero_point : quantizer.min;
  params.high = quantizer.max;
  return params;
}

template <CodeBinary kKind, Relu kRelu>
struct QuantizedBinary final : Op<QuantizedBinary<kKind, kRelu>> {
  static constexpr std::string_view kName =
      named(kKind, kRelu, "quantized::add", "quantized::add_relu", "quantized::mul",
            "quantized::mul_relu");
  static constexpr ArgumentCount kArguments{2};
  static constexpr bool kWorksByRows = true;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  QuantizedBinary() = default;
  QuantizedBinary(double scale_out, std::int64_t zero_point_out)
      : scale(scale_out), zero_point(zero_point_out) {}
  void infer(const Arguments& in, Results& out) const override {
    infer_code_binary(kName, in[0], in[1], scale, zero_point, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return run_code_binary(kKind, in[0], in[1], out[0], kRelu);
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::combine_codes(out[0].device(), combine_params(kKind, in[0], in[1], out[0], kRelu));
    return "combine_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  PlanUse plan_use(const Arguments& in, std::span<const Tensor>) const override {
    PlanUse use;
    if (kKind == CodeBinary::Add && in[0].sizes() == in[1].sizes()) {
      use.sum = PlanUse::CodeSum{kRelu == Relu::Yes};
    }
    return use;
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizedBinary, &QuantizedBinary::scale>("scale"),
        attribute<QuantizedBinary, &QuantizedBinary::zero_point>("zero_point")};
    return kTable;
  }
};

// Of a tensor and a number ---------------------------------------------------------------------

// The result's parameters, and what becomes of each code.
struct NumberStep {
  enum class Codes : std::uint8_t { Keep, Mirror, Zero, Requantize };
  Quantizer to;
  Codes codes = Codes::Keep;
  std::int64_t shift = 0;  // to be added before codes are requantized
};

// The codes stay if the zero point can move by round(value / scale).
NumberStep add_number(std::string_view op, const Tensor& x, double value) {
  const Quantizer& from = x.impl()->quantizer;
  const double steps = std::nearbyint(value / from.scale);
  QUANTA_CHECK(std::fabs(steps) < 2147483648.0,
               "{}: value: expected fewer than 2^31 steps of the scale {}, got {}", op, from.scale,
               value);
  const auto shift = static_cast<std::int64_t>(steps);
  const IntRange range = cpu::code_range(x.dtype());
  const std::int64_t moved = from.zero_point - shift;
  if (moved >= range.min && moved <= range.max) {
    return {Quantizer::per_tensor(from.scale, moved), NumberStep::Codes::Keep, shift};
  }
  // The zero point stays at the end of the range and the scale grows to reach the rest.
  const double width = static_cast<double>(range.max) - static_cast<double>(range.min);
  const double reach = moved < range.min ? static_cast<double>(range.max - moved)
                                         : static_cast<double>(moved - range.min);
  return {
      Quantizer::per_tensor(reach / width * from.scale, moved < range.min ? range.min : range.max),
      NumberStep::Codes::Requantize, shift};
}

// The codes stay, turned round where the number is negative.
NumberStep mul_number(const Tensor& x, double value) {
  const Quantizer& from = x.impl()->quantizer;
  if (value > 0.0) return {Quantizer::per_tensor(from.scale * value, from.zero_point)};
  if (value == 0.0) return {Quantizer::per_tensor(1.0, 0), NumberStep::Codes::Zero};
  const IntRange range = cpu::code_range(x.dtype());
  return {Quantizer::per_tensor(-value * from.scale, range.max - (from.zero_point - range.min)),
          NumberStep::Codes::Mirror};
}

class NumberFunction {
 public:
  NumberFunction(const NumberStep& step, const Quantizer& from, DType dtype, Relu relu)
      : step_(step),
        zero_point_(from.zero_point),
        to_code_(step.to.scale, step.to.zero_point, dtype),
        multiplier_(static_cast<float>(from.scale) * to_code_.inv_scale) {
    if (relu == Relu::Yes) to_code_.min = to_code_.zero_point;
  }

  std::int32_t operator()(std::int32_t code) const {
    switch (step_.codes) {
      case NumberStep::Codes::Keep:
        return std::max(code, to_code_.min);
      case NumberStep::Codes::Mirror:
        return std::max(mirrored(code), to_code_.min);
      case NumberStep::Codes::Zero:
        return to_code_.zero_point;
      case NumberStep::Codes::Requantize:
        break;
    }
    const std::int64_t sum = code - zero_point_ + step_.shift;
    if (to_code_.is_qint32) {
      return std::max(to_code_.min, math::requantize_qint32(sum, multiplier_, to_code_.zero_point));
    }
    return math::quantize(static_cast<float>(sum), multiplier_, to_code_.zero_point, to_code_.min,
                          to_code_.max);
  }

 private:
  // min + max - code.
  std::int32_t mirrored(std::int32_t code) const {
    return to_code_.max == 255 ? 255 - code : -1 - code;
  }

  NumberStep step_;
  std::int64_t zero_point_;
  cpu::ScalarQuantizer to_code_;
  float multiplier_;
};

void copy_codes(const Tensor& x, const Tensor& out) {
  const auto* src = static_cast<const std::uint8_t*>(x.data_ptr());
  auto* dst = static_cast<std::uint8_t*>(out.data_ptr());
  if (src == dst) return;
  cpu::parallel_elements(
      static_cast<std::int64_t>(x.nbytes()), [&](std::int64_t begin, std::int64_t end) {
        std::memcpy(dst + begin, src + begin, static_cast<std::size_t>(end - begin));
      });
}

template <CodeBinary kKind, Relu kRelu>
struct QuantizedWithNumber final : Op<QuantizedWithNumber<kKind, kRelu>> {
  static constexpr std::string_view kName =
      named(kKind, kRelu, "quantized::add_scalar", "quantized::add_scalar_relu",
            "quantized::mul_scalar", "quantized::mul_scalar_relu");
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  double other = kKind == CodeBinary::Add ? 0.0 : 1.0;

  QuantizedWithNumber() = default;
  explicit QuantizedWithNumber(double number) : other(number) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    cpu::check_per_tensor(kName, "x", x);
    QUANTA_CHECK(std::isfinite(other), "{}: value: expected a finite number, got {}", kName, other);
    const NumberStep step = step_for(x);
    check_quantizer(kName, step.to, x.dtype(), x.sizes());
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), step.to, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const NumberStep step = step_for(x);
    if (step.codes == NumberStep::Codes::Keep && kRelu == Relu::No) {
      copy_codes(x, out[0]);
      return "copy";
    }
    cpu::map_codes(x, out[0], key(x, step), function(x, step));
    return "lookup";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const NumberStep step = step_for(x);
    cuda::look_up(x, out[0], cpu::code_table(key(x, step), function(x, step)));
    return "look_up_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  PlanUse plan_use(const Arguments& in, std::span<const Tensor>) const override {
    const Tensor& x = in[0];
    if (x.dtype() == DType::QInt32) return {.in_place = true};
    const NumberStep step = step_for(x);
    return {.in_place = true,
            .table = std::make_shared<const ByteTable>(
                cpu::code_table(key(x, step), function(x, step)))};
  }
  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> table) const override {
    return std::make_shared<detail::LookUp>(std::move(table));
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizedWithNumber, &QuantizedWithNumber::other>("other")};
    return kTable;
  }

 private:
  NumberStep step_for(const Tensor& x) const {
    return kKind == CodeBinary::Add ? add_number(kName, x, other) : mul_number(x, other);
  }
  cpu::TableKey key(const Tensor& x, const NumberStep& step) const {
    const Quantizer& from = x.impl()->quantizer;
    return {kName,         x.dtype(),          from.scale, from.zero_point,
            step.to.scale, step.to.zero_point, {other}};
  }
  static NumberFunction function(const Tensor& x, const NumberStep& step) {
    return {step, x.impl()->quantizer, x.dtype(), kRelu};
  }
};

using Add = QuantizedBinary<CodeBinary::Add, Relu::No>;
using AddReLU = QuantizedBinary<CodeBinary::Add, Relu::Yes>;
using Sub = QuantizedBinary<CodeBinary::Sub, Relu::No>;
using Mul = QuantizedBinary<CodeBinary::Mul, Relu::No>;
using MulReLU = QuantizedBinary<CodeBinary::Mul, Relu::Yes>;
using AddScalar = QuantizedWithNumber<CodeBinary::Add, Relu::No>;
using AddScalarReLU = QuantizedWithNumber<CodeBinary::Add, Relu::Yes>;
using MulScalar = QuantizedWithNumber<CodeBinary::Mul, Relu::No>;
using MulScalarReLU = QuantizedWithNumber<CodeBinary::Mul, Relu::Yes>;

// The catalogue --------------------------------------------------------------------------------

constexpr std::string_view kHeader = "quanta/ops/arithmetic.h";

template <typename Kind>
void add_two(Catalogue& catalogue, std::string_view header = kHeader) {
  catalogue.add({.name = Kind::kName, .header = header, .dtypes = dtypes::kQ}, [](DType dtype) {
    return sample_call(Kind{0.04, 9},
                       {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({3, 1, 1}, dtype, 2)});
  });
}

template <typename Kind>
void add_number_form(Catalogue& catalogue, SampleFunction sample) {
  catalogue.add({.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kQ}, sample);
}

template <typename Kind>
Sample sample_with(double number, DType dtype) {
  return sample_call(Kind{number}, {sample_tensor({2, 3, 5, 4}, dtype)});
}

}  // namespace

void add_quantized(Catalogue& catalogue) {
  add_two<Add>(catalogue);
  add_two<AddReLU>(catalogue);
  add_two<Sub>(catalogue, "quanta/ops/arithmetic_quantized.h");
  add_two<Mul>(catalogue);
  add_two<MulReLU>(catalogue);
  add_number_form<AddScalar>(catalogue,
                             [](DType dtype) { return sample_with<AddScalar>(0.5, dtype); });
  // So much that codes have to be requantized.
  add_number_form<AddScalarReLU>(
      catalogue, [](DType dtype) { return sample_with<AddScalarReLU>(-10.0, dtype); });
  add_number_form<MulScalar>(catalogue,
                             [](DType dtype) { return sample_with<MulScalar>(2.0, dtype); });
  add_number_form<MulScalarReLU>(
      catalogue, [](DType dtype) { return sample_with<MulScalarReLU>(-1.5, dtype); });
}

}  // namespace arithmetic

namespace quantized {

QTensor add(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(arithmetic::Add{scale, zero_point}, lhs, rhs));
}
QTensor add_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(arithmetic::AddReLU{scale, zero_point}, lhs, rhs));
}
QTensor sub(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(arithmetic::Sub{scale, zero_point}, lhs, rhs));
}
QTensor mul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(arithmetic::Mul{scale, zero_point}, lhs, rhs));
}
QTensor mul_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(arithmetic::MulReLU{scale, zero_point}, lhs, rhs));
}
QTensor add_scalar(const QTensor& x, double value) {
  return QTensor(run(arithmetic::AddScalar{value}, x));
}
QTensor add_scalar_relu(const QTensor& x, double value) {
  return QTensor(run(arithmetic::AddScalarReLU{value}, x));
}
QTensor mul_scalar(const QTensor& x, double value) {
  return QTensor(run(arithmetic::MulScalar{value}, x));
}
QTensor mul_scalar_relu(const QTensor& x, double value) {
  return QTensor(run(arithmetic::MulScalarReLU{value}, x));
}

}  // namespace quantized
}  // namespace quanta
