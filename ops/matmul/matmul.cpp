#include "quanta/ops/matmul.h"

#include <array>
#include <cstdint>
#include <type_traits>

#include "quanta/ops/cpu/gemm/multiply_codes.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cuda/matrices.h"
#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/matrix_product.h"
#include "quanta/ops/matmul/cpu_matmul.h"
#include "quanta/ops/matmul/families.h"
#include "quanta/ops/matmul/gradient.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace matrix_product {
namespace {

using detail::matrix_sizes;
using detail::MatrixSizes;
using detail::multiply_activations;
using detail::multiply_activations_on_cuda;
using detail::scale_of_sums;

// Plain loops, for proofs of gradients and for integers, which wrap around as torch's do: out = lhs
// x rhs, batch dimensions broadcast.
template <typename T>
void plain_matmul(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  using Sum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
  const auto expanded = [&](const Tensor& x) {
    Dims sizes = out.sizes();
    sizes[sizes.size() - 2] = x.size(-2);
    sizes[sizes.size() - 1] = x.size(-1);
    return x.expand(sizes).contiguous();
  };
  const Tensor left = expanded(lhs);
  const Tensor right = expanded(rhs);
  const std::int64_t rows = left.size(-2);
  const std::int64_t inner = left.size(-1);
  const std::int64_t columns = right.size(-1);
  T* results = out.mutable_data<T>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::int64_t column = i % columns;
    const std::int64_t row = i / columns;  // of all batches
    const T* a = left.data<T>() + row * inner;
    const T* b = right.data<T>() + row / rows * inner * columns + column;
    Sum sum = 0;
    for (std::int64_t k = 0; k < inner; ++k) {
      sum += static_cast<Sum>(a[k]) * static_cast<Sum>(b[k * columns]);
    }
    results[i] = static_cast<T>(sum);
  }
}

// Matrices of one rank, with the 1 that a vector stands for.
struct Operands {
  Operands(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
    const MatrixSizes sizes = matrix_sizes("matmul", lhs, rhs);
    left = lhs.view(sizes.left);
    right = rhs.view(sizes.right);
    result = out.view(sizes.result);
  }
  Tensor left, right, result;
};

// Gives the name of the kernel.
std::string_view multiply(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  if (lhs.sizes().back() == 0) {
    out.fill_(0.0);
    return "fill";
  }
  const auto [left, right, result] = Operands(lhs, rhs, out);
  switch (out.dtype()) {
    case DType::Float64:
      plain_matmul<double>(left, right, result);
      return "doubles";
    case DType::Int32:
      plain_matmul<std::int32_t>(left, right, result);
      return "scalar";
    case DType::Int64:
      plain_matmul<std::int64_t>(left, right, result);
      return "scalar";
    default:
      break;
  }
  cpu::matmul(left, right, result);
  return "onednn";
}

void check_operand(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a Float32 tensor, got an undefined one", op,
               argument);
  QUANTA_SUPPORTED(!x.is_quantized(),
                   "{}: {}: expected Float32, got a quantized tensor ({}), and the result's "
                   "scale is not known here: use nn::FloatFunctional, or dequantize first",
                   op, argument, x.dtype());
  QUANTA_SUPPORTED(detail::is_float32_or_64(x.dtype()) || x.dtype() == DType::Int32 ||
                       x.dtype() == DType::Int64 || detail::is_float_of_cuda(x),
                   "{}: {}: expected Float32, Float64, Int32 or Int64 on the CPU, got {}{}", op,
                   argument, x.dtype(),
                   detail::is_float_of_16_bits(x.dtype()) ? ", which a CUDA device takes" : "");
}

void check_batches(std::string_view op, const Tensor& lhs, const Tensor& rhs) {
  QUANTA_CHECK(lhs.defined() && lhs.dim() == 3, "{}: lhs: expected [B, M, K], got {}", op,
               lhs.defined() ? to_string(lhs.sizes()) : "an undefined tensor");
  QUANTA_CHECK(rhs.defined() && rhs.dim() == 3 && rhs.size(0) == lhs.size(0),
               "{}: rhs: expected [{}, K, N] for lhs of sizes {}, got {}", op, lhs.size(0),
               lhs.sizes(), rhs.defined() ? to_string(rhs.sizes()) : "an undefined tensor");
}

// Which operands are taken: those of matmul, or two batches of equal size (bmm).
enum class Form : std::uint8_t { Matmul, Bmm };

template <Form kForm>
struct MatrixProduct final : Op<MatrixProduct<kForm>> {
  static constexpr std::string_view kName = kForm == Form::Bmm ? "bmm" : "matmul";
  static constexpr ArgumentCount kArguments{2};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& lhs = in[0];
    const Tensor& rhs = in[1];
    if (kForm == Form::Bmm) check_batches(kName, lhs, rhs);
    check_operand(kName, "lhs", lhs);
    check_operand(kName, "rhs", rhs);
    QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", kName,
                 lhs.dtype(), rhs.dtype());
    out.add(matrix_sizes(kName, lhs, rhs).out, lhs.dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return multiply(in[0], in[1], out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].sizes().back() == 0) {
      out[0].fill_(0.0);
      return "fill";
    }
    const auto [left, right, result] = Operands(in[0], in[1], out[0]);
    return cuda::multiply(left, right, {}, result);
  }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    OpWork work = Op<MatrixProduct>::work(in, out);
    work.multiply_adds = out[0].numel() * in[0].sizes().back();
    return work;
  }
  GradientUse gradient_use(std::uint64_t needed) const override {
    return GradientUse::of((needed >> 1U & 1U) | (needed & 1U) << 1U);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return product_gradient(context);
  }
};

template <Form kForm>
struct QuantizedMatrixProduct final : Op<QuantizedMatrixProduct<kForm>> {
  static constexpr std::string_view kName =
      kForm == Form::Bmm ? "quantized::bmm" : "quantized::matmul";
  static constexpr ArgumentCount kArguments{2};
  double scale = 1.0;
  std::int64_t zero_point = 0;

  QuantizedMatrixProduct() = default;
  QuantizedMatrixProduct(double scale_out, std::int64_t zero_point_out)
      : scale(scale_out), zero_point(zero_point_out) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& lhs = in[0];
    const Tensor& rhs = in[1];
    if (kForm == Form::Bmm) check_batches(kName, lhs, rhs);
    cpu::check_per_tensor(kName, "lhs", lhs);
    cpu::check_per_tensor(kName, "rhs", rhs);
    QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", kName,
                 lhs.dtype(), rhs.dtype());
    QUANTA_SUPPORTED(lhs.dtype() != DType::QInt32,
                     "{}: lhs: expected QUInt8 or QInt8 on the CPU, got QInt32", kName);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, lhs.dtype(), {});
    out.add(matrix_sizes(kName, lhs, rhs).out, lhs.dtype(), quantizer);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const QTensor lhs(in[0]);
    const QTensor rhs(in[1]);
    const std::int64_t depth = lhs.sizes().back();
    if (depth == 0 || depth > cpu::kMaxExactDepth) {
      copy_result(quantize_per_tensor(quanta::matmul(dequantize(lhs), dequantize(rhs)), scale,
                                      zero_point, lhs.dtype()),
                  out[0]);
      return "dequantize, matmul, quantize";
    }
    const cpu::QuantizeArgs args = cpu::ScalarQuantizer(QTensor(out[0])).args();
    const cpu::SumsToCodes to_codes{scale_of_sums(lhs, rhs), args.inv_scale, args.zero_point,
                                    args.min, args.max};
    auto* dst = static_cast<std::uint8_t*>(out[0].data_ptr());
    return multiply_activations(lhs, rhs, matrix_sizes(kName, lhs, rhs),
                                [&](const cpu::RowOfSums& row) {
                                  cpu::sums_row_to_codes(to_codes, row.sums, row.column_terms,
                                                         row.row_term, row.count, dst + row.at);
                                });
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t depth = in[0].sizes().back();
    QUANTA_SUPPORTED(depth <= cpu::kMaxExactDepth,
                     "{}: lhs: expected at most {} columns on a CUDA device, got {}", kName,
                     cpu::kMaxExactDepth, depth);
    const cpu::QuantizeArgs args = cpu::ScalarQuantizer(QTensor(out[0])).args();
    multiply_activations_on_cuda(in[0], in[1], matrix_sizes(kName, in[0], in[1]),
                                 {.end = cuda::ActivationProduct::End::Codes,
                                  .scale = scale_of_sums(in[0], in[1]),
                                  .inv_scale = args.inv_scale,
                                  .zero_point = args.zero_point,
                                  .low = args.min,
                                  .high = args.max},
                                 out[0]);
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    OpWork work = Op<QuantizedMatrixProduct>::work(in, out);
    work.multiply_adds = out[0].numel() * in[0].sizes().back();
    return work;
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizedMatrixProduct, &QuantizedMatrixProduct::scale>("scale"),
        attribute<QuantizedMatrixProduct, &QuantizedMatrixProduct::zero_point>("zero_point")};
    return kTable;
  }
};

using Matmul = MatrixProduct<Form::Matmul>;
using Bmm = MatrixProduct<Form::Bmm>;
using QuantizedMatmul = QuantizedMatrixProduct<Form::Matmul>;
using QuantizedBmm = QuantizedMatrixProduct<Form::Bmm>;

}  // namespace
}  // namespace matrix_product

using namespace matrix_product;

Tensor matmul(const Tensor& lhs, const Tensor& rhs) { return run(Matmul{}, lhs, rhs); }
Tensor bmm(const Tensor& lhs, const Tensor& rhs) { return run(Bmm{}, lhs, rhs); }

QTensor quantized::matmul(const QTensor& lhs, const QTensor& rhs, double scale,
                          std::int64_t zero_point) {
  return QTensor(run(QuantizedMatmul{scale, zero_point}, lhs, rhs));
}
QTensor quantized::bmm(const QTensor& lhs, const QTensor& rhs, double scale,
                       std::int64_t zero_point) {
  return QTensor(run(QuantizedBmm{scale, zero_point}, lhs, rhs));
}

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/matmul.h";

template <typename Kind, typename... Settings>
Sample broadcast_sample(DType dtype, Settings... settings) {
  return sample_call(Kind{settings...},
                     {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({3, 4, 2}, dtype, 2)});
}
template <typename Kind, typename... Settings>
Sample batch_sample(DType dtype, Settings... settings) {
  return sample_call(Kind{settings...},
                     {sample_tensor({3, 5, 4}, dtype), sample_tensor({3, 4, 2}, dtype, 2)});
}

}  // namespace

void detail::add_matmul(Catalogue& catalogue) {
  catalogue.add({.name = Matmul::kName, .header = kHeader, .dtypes = dtypes::kNumbers},
                [](DType dtype) { return broadcast_sample<Matmul>(dtype); });
  catalogue.add({.name = Bmm::kName, .header = kHeader, .dtypes = dtypes::kNumbers},
                [](DType dtype) { return batch_sample<Bmm>(dtype); });
  catalogue.add(
      {.name = QuantizedMatmul::kName, .header = kHeader, .dtypes = dtypes::kQ8},
      [](DType dtype) { return broadcast_sample<QuantizedMatmul>(dtype, 0.1, std::int64_t{12}); });
  catalogue.add(
      {.name = QuantizedBmm::kName, .header = kHeader, .dtypes = dtypes::kQ8},
      [](DType dtype) { return batch_sample<QuantizedBmm>(dtype, 0.1, std::int64_t{12}); });
  add_det(catalogue);
  add_einsum(catalogue);
}

}  // namespace quanta
