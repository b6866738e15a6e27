#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic/code_operands.h"
#include "quanta/ops/arithmetic/cuda_pairs.h"
#include "quanta/ops/arithmetic/families.h"
#include "quanta/ops/arithmetic/pair_functions.h"
#include "quanta/ops/arithmetic_quantized.h"
#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/codes.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/look_up.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/quant_math.h"

// Functions of codes through the floats that they stand for.

namespace quanta {
namespace arithmetic {
namespace {

// A code to a float, as dequantize() does it.
struct Dequantizer {
  explicit Dequantizer(const Tensor& x)
      : scale(static_cast<float>(x.impl()->quantizer.scale)),
        zero_point(static_cast<std::int32_t>(x.impl()->quantizer.zero_point)) {}
  float operator()(std::int32_t code) const { return math::dequantize(code, scale, zero_point); }

  float scale;
  std::int32_t zero_point;
};

template <typename F>
constexpr cuda::CodePairFunction cuda_function() {
  if (std::is_same_v<F, Divide>) return cuda::CodePairFunction::Divide;
  return std::is_same_v<F, Minimum> ? cuda::CodePairFunction::Minimum
                                    : cuda::CodePairFunction::Maximum;
}

template <typename F, typename T>
void map_pairs(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  const Dequantizer left(lhs);
  const Dequantizer right(rhs);
  const cpu::ScalarQuantizer to_code(out);
  cpu::broadcast_binary<T>(
      lhs, rhs, out,
      [&](const T* left_row, const T* right_row, T* dst, std::int64_t count, cpu::Rhs kind,
          cpu::Store) {
        const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
        for (std::int64_t i = 0; i < count; ++i) {
          dst[i] = static_cast<T>(to_code(F::value(left(left_row[i]), right(right_row[i * step]))));
        }
      });
}

// What these operations have as settings.
template <typename Derived>
struct WithOutput : Op<Derived> {
  static constexpr bool kWorksByRows = true;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Derived, &Derived::scale>("scale"),
                                       attribute<Derived, &Derived::zero_point>("zero_point")};
    return kTable;
  }
};

template <typename F>
struct OfPairs final : WithOutput<OfPairs<F>> {
  static constexpr std::string_view kName = F::kName;
  static constexpr ArgumentCount kArguments{2};

  void infer(const Arguments& in, Results& out) const override {
    infer_code_binary(kName, in[0], in[1], this->scale, this->zero_point, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    switch (in[0].dtype()) {
      case DType::QUInt8:
        map_pairs<F, std::uint8_t>(in[0], in[1], out[0]);
        break;
      case DType::QInt8:
        map_pairs<F, std::int8_t>(in[0], in[1], out[0]);
        break;
      default:
        map_pairs<F, std::int32_t>(in[0], in[1], out[0]);
        break;
    }
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims lhs_strides = cpu::broadcast_strides(in[0], out[0].sizes());
    const Dims rhs_strides = cpu::broadcast_strides(in[1], out[0].sizes());
    const Dequantizer left(in[0]);
    const Dequantizer right(in[1]);
    const cpu::ScalarQuantizer to_code(out[0]);
    cuda::combine_code_pairs(
        out[0].device(), {.function = cuda_function<F>(),
                          .is_signed = out[0].dtype() == DType::QInt8,
                          .walk = {out[0].sizes(), {&out[0].strides(), &lhs_strides, &rhs_strides}},
                          .lhs = in[0].device_ptr(),
                          .rhs = in[1].device_ptr(),
                          .out = out[0].device_ptr(),
                          .lhs_scale = left.scale,
                          .rhs_scale = right.scale,
                          .lhs_zero_point = left.zero_point,
                          .rhs_zero_point = right.zero_point,
                          .inv_scale = to_code.inv_scale,
                          .zero_point = to_code.zero_point,
                          .low = to_code.min,
                          .high = to_code.max});
    return "combine_code_pairs";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
};

struct Negate {
  Dequantizer to_float;
  cpu::ScalarQuantizer to_code;
  std::int32_t operator()(std::int32_t code) const { return to_code(-to_float(code)); }
};

struct Neg final : WithOutput<Neg> {
  static constexpr std::string_view kName = "quantized::neg";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    cpu::check_per_tensor(kName, "x", x);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, x.dtype(), x.sizes());
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), quantizer, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::map_codes(in[0], out[0], key(in[0]), function(in[0]));
    return "lookup";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::look_up(in[0], out[0], cpu::code_table(key(in[0]), function(in[0])));
    return "look_up_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  PlanUse plan_use(const Arguments& in, std::span<const Tensor>) const override {
    if (in[0].dtype() == DType::QInt32) return {.in_place = true};
    return {
        .in_place = true,
        .table = std::make_shared<const ByteTable>(cpu::code_table(key(in[0]), function(in[0])))};
  }
  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> table) const override {
    return std::make_shared<detail::LookUp>(std::move(table));
  }

 private:
  cpu::TableKey key(const Tensor& x) const {
    const Quantizer& from = x.impl()->quantizer;
    return {kName, x.dtype(), from.scale, from.zero_point, scale, zero_point, {}};
  }
  Negate function(const Tensor& x) const {
    return {Dequantizer(x), cpu::ScalarQuantizer(scale, zero_point, x.dtype())};
  }
};

struct Mean final : ComposedOp<Mean> {
  static constexpr std::string_view kName = "quantized::mean";
  static constexpr ArgumentCount kArguments{1};
  double scale = 1.0;
  std::int64_t zero_point = 0;
  Dims dim;
  bool keepdim = false;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    cpu::check_per_tensor(kName, "x", x);
    const Tensor floats = quanta::mean(dequantize(QTensor(x)), dim, {.keepdim = keepdim});
    return {quantize_per_tensor(floats, scale, zero_point, x.dtype())};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Mean, &Mean::scale>("scale"), attribute<Mean, &Mean::zero_point>("zero_point"),
        attribute<Mean, &Mean::dim>("dim"), attribute<Mean, &Mean::keepdim>("keepdim")};
    return kTable;
  }
};

template <typename Kind>
Kind with_output(double scale, std::int64_t zero_point) {
  Kind operation;
  operation.scale = scale;
  operation.zero_point = zero_point;
  return operation;
}

Mean mean_over(const Dims& dims, bool keepdim, double scale, std::int64_t zero_point) {
  auto operation = with_output<Mean>(scale, zero_point);
  operation.dim = dims;
  operation.keepdim = keepdim;
  return operation;
}

// The catalogue --------------------------------------------------------------------------------

constexpr std::string_view kHeader = "quanta/ops/arithmetic_quantized.h";

template <typename Kind>
void add_pairs(Catalogue& catalogue) {
  catalogue.add({.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kQ}, [](DType dtype) {
    return sample_call(with_output<Kind>(0.04, 9),
                       {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({3, 1, 1}, dtype, 2)});
  });
}

}  // namespace

void add_quantized_functions(Catalogue& catalogue) {
  add_pairs<OfPairs<Divide>>(catalogue);
  add_pairs<OfPairs<Minimum>>(catalogue);
  add_pairs<OfPairs<Maximum>>(catalogue);
  catalogue.add({.name = Neg::kName, .header = kHeader, .dtypes = dtypes::kQ}, [](DType dtype) {
    return sample_call(with_output<Neg>(0.04, 9), {sample_tensor({2, 3, 5, 4}, dtype)});
  });
  catalogue.add({.name = Mean::kName, .header = kHeader, .dtypes = dtypes::kQ}, [](DType dtype) {
    return sample_call(mean_over({1, -1}, false, 0.04, 9), {sample_tensor({2, 3, 5, 4}, dtype)});
  });
}

}  // namespace arithmetic

namespace quantized {

using namespace arithmetic;

QTensor div(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(with_output<OfPairs<Divide>>(scale, zero_point), lhs, rhs));
}
QTensor minimum(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(with_output<OfPairs<Minimum>>(scale, zero_point), lhs, rhs));
}
QTensor maximum(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return QTensor(run(with_output<OfPairs<Maximum>>(scale, zero_point), lhs, rhs));
}
QTensor neg(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(with_output<Neg>(scale, zero_point), x));
}
QTensor mean(const QTensor& x, const Dims& dims, double scale, std::int64_t zero_point,
             const ReduceOptions& options) {
  return QTensor(run(mean_over(dims, options.keepdim, scale, zero_point), x));
}

}  // namespace quantized
}  // namespace quanta
