#include "quanta/ops/integer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "quanta/ops/cpu/gemm/codes_product.h"
#include "quanta/ops/cpu/gemm/conv_exact.h"
#include "quanta/ops/cpu/gemm/multiply_codes.h"
#include "quanta/ops/cpu/gemm/requantize_rows.h"
#include "quanta/ops/detail/byte_operands.h"
#include "quanta/ops/detail/cuda_code_product.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/matrix_product.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace integer {
namespace {

using cpu::CodesOperand;
using detail::check_byte_zero_point;
using detail::check_bytes;
using detail::matrix_sizes;
using detail::MatrixSizes;
using detail::multiply_activations;
using detail::multiply_activations_on_cuda;
using detail::scale_of_sums;
using detail::turned_bytes;
using detail::zero_points_of_bytes;

constexpr std::array kBytes{DType::UInt8, DType::Int8};

MatrixSizes sizes_of_bytes(const Tensor& a, const Tensor& b) {
  return matrix_sizes("matmul_integer", a, b, {"a", "b"});
}

/// All matrices of the result's batch, one after the other: [batch, rows, columns].
Tensor expanded(const Tensor& x, const Dims& own, const Dims& result) {
  Dims sizes = result;
  sizes[sizes.size() - 2] = own[own.size() - 2];
  sizes[sizes.size() - 1] = own.back();
  return x.view(own).expand(sizes);
}

/// The sums over k of b[k][n] - zero points, for each column n of packed [N, K].
std::vector<std::int32_t> column_sums(const std::int8_t* weight,
                                      const std::vector<std::int64_t>& zeros, std::int64_t columns,
                                      std::int64_t depth) {
  std::vector<std::int32_t> sums(static_cast<std::size_t>(columns));
  for (std::int64_t n = 0; n < columns; ++n) {
    const std::int64_t zero = zeros[zeros.size() == 1 ? 0 : static_cast<std::size_t>(n)];
    std::int64_t sum = -zero * depth;
    for (std::int64_t k = 0; k < depth; ++k) sum += weight[n * depth + k];
    sums[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(sum);
  }
  return sums;
}

// Wraps, as sums do.
void subtract_rows(const std::vector<std::int64_t>& zeros, const std::vector<std::int32_t>& sums,
                   std::int32_t* dst) {
  for (const std::int64_t zero : zeros) {
    for (const std::int32_t sum : sums) {
      const auto term = static_cast<std::uint32_t>(static_cast<std::uint64_t>(zero * sum));
      *dst = static_cast<std::int32_t>(static_cast<std::uint32_t>(*dst) - term);
      ++dst;
    }
  }
}

/// All products of a batch, one after the other, of contiguous operands with at least one row in
/// `b`.
void multiply(const Tensor& a, const Tensor& b, const MatrixSizes& sizes,
              const std::vector<std::int64_t>& a_zeros, const std::vector<std::int64_t>& b_zeros,
              std::int32_t* dst) {
  cpu::ConvShape shape;  // a 1x1 convolution over one row of pixels
  shape.batch = sizes.left[sizes.left.size() - 2];
  shape.in_channels = sizes.left.back();
  shape.out_channels = sizes.right.back();
  const Tensor left = expanded(a, sizes.left, sizes.result).contiguous();
  const std::vector<std::uint8_t> rows = turned_bytes<std::uint8_t>(left, false);
  const bool one_right = b.numel() == shape.in_channels * shape.out_channels;
  const Tensor right = one_right
                           ? b.view({shape.in_channels, shape.out_channels}).t().contiguous()
                           : expanded(b, sizes.right, sizes.result).transpose(-1, -2).contiguous();
  const std::vector<std::int8_t> weights = turned_bytes<std::int8_t>(right, true);

  const std::int64_t left_step = shape.batch * shape.in_channels;
  const std::int64_t right_step = one_right ? 0 : shape.in_channels * shape.out_channels;
  const std::int64_t out_step = shape.batch * shape.out_channels;
  const std::int64_t count = left_step == 0 ? 0 : left.numel() / left_step;
  const bool by_rows = a_zeros.size() > 1;
  cpu::ExactWeights packed;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int8_t* matrix = weights.data() + i * right_step;
    if (i == 0 || !one_right) packed = cpu::pack_exact_weights(matrix, b_zeros, shape);
    cpu::conv_exact_s32(rows.data() + i * left_step,
                        by_rows ? 0 : static_cast<std::int32_t>(a_zeros[0]), packed, shape,
                        dst + i * out_step);
    if (by_rows) {
      subtract_rows(a_zeros, column_sums(matrix, b_zeros, shape.out_channels, shape.in_channels),
                    dst + i * out_step);
    }
  }
}

Tensor dense(const Tensor& zero_points) {
  return zero_points.defined() ? zero_points.contiguous() : zero_points;
}

/// The one zero point of an operand, which may be written down for each row or column; none is 0.
std::optional<std::int32_t> one_zero_point(const Tensor& zero_point) {
  if (!zero_point.defined() || zero_point.numel() == 0) return 0;
  const std::vector<std::int64_t> all = zero_point.to_int64_vector();
  const bool same =
      std::all_of(all.begin(), all.end(), [&](std::int64_t z) { return z == all[0]; });
  if (!same) return {};
  return static_cast<std::int32_t>(all[0]);
}

OpWork product_work(const Tensor& a, const Tensor& b, const Tensor& out) {
  return {.multiply_adds = out.numel() * a.sizes().back(),
          .bytes = static_cast<std::int64_t>(a.nbytes() + b.nbytes() + out.nbytes())};
}

struct MatmulInteger final : Op<MatmulInteger> {
  static constexpr std::string_view kName = "matmul_integer";
  static constexpr ArgumentCount kArguments{4};

  void infer(const Arguments& in, Results& out) const override {
    check_bytes(kName, "a", in[0]);
    check_bytes(kName, "b", in[1]);
    const MatrixSizes sizes = sizes_of_bytes(in[0], in[1]);
    check_byte_zero_point(kName, "a_zero_point", in[2], in[0].dtype(),
                          sizes.result[sizes.result.size() - 2]);
    check_byte_zero_point(kName, "b_zero_point", in[3], in[1].dtype(), sizes.result.back());
    out.add(sizes.out, DType::Int32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].sizes().back() == 0) {
      out[0].fill_(0.0);
      return "fill";
    }
    const MatrixSizes sizes = sizes_of_bytes(in[0], in[1]);
    auto* dst = static_cast<std::int32_t*>(out[0].data_ptr());
    const std::optional<std::int32_t> a_zero = one_zero_point(in[2]);
    const std::optional<std::int32_t> b_zero = one_zero_point(in[3]);
    if (a_zero && b_zero) {
      return cpu::multiply_operands(CodesOperand::of(in[0].view(sizes.left), *a_zero),
                                    CodesOperand::of(in[1].view(sizes.right), *b_zero),
                                    sizes.result, [&](const cpu::RowOfSums& row) {
                                      cpu::add_terms(row.sums, row.column_terms, row.row_term,
                                                     row.count, dst + row.at);
                                    });
    }
    multiply(in[0].contiguous(), in[1].contiguous(), sizes,
             zero_points_of_bytes(in[2], in[0].dtype(), false),
             zero_points_of_bytes(in[3], in[1].dtype(), true), dst);
    return "exact";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const MatrixSizes sizes = sizes_of_bytes(in[0], in[1]);
    detail::multiply_bytes_on_cuda({in[0].view(sizes.left), 0, dense(in[2])},
                                   {in[1].view(sizes.right), 0, dense(in[3])}, {},
                                   out[0].view(sizes.result));
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kBytes; }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return product_work(in[0], in[1], out[0]);
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
};

/// What the products of two activations share: the result's sizes.
Dims infer_codes(std::string_view op, const Arguments& in) {
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string_view argument = i == 0 ? "lhs" : "rhs";
    require_tensor(op, argument, in[i], {DType::QUInt8});
    QUANTA_CHECK(!is_per_channel(in[i].impl()->quantizer.scheme),
                 "{}: {}: expected a tensor quantized per tensor, got per channel", op, argument);
  }
  return matrix_sizes(op, in[0], in[1]).out;
}

struct MatmulExact final : Op<MatmulExact> {
  static constexpr std::string_view kName = "quantized::matmul_exact";
  static constexpr ArgumentCount kArguments{2};
  double scale = 1.0;
  std::int64_t zero_point = 0;

  MatmulExact() = default;
  MatmulExact(double scale_out, std::int64_t zero_point_out)
      : scale(scale_out), zero_point(zero_point_out) {}

  void infer(const Arguments& in, Results& out) const override {
    const Dims result = infer_codes(kName, in);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, DType::QUInt8, result);
    out.add(result, DType::QUInt8, quantizer);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const MatrixSizes sizes = matrix_sizes(kName, in[0], in[1]);
    const std::vector<float> multipliers(static_cast<std::size_t>(sizes.result.back()),
                                         scale_of_sums(in[0], in[1]) / static_cast<float>(scale));
    const cpu::RequantizeParams requantize{.bias = nullptr,
                                           .multiplier = multipliers.data(),
                                           .zero_point = static_cast<std::int32_t>(zero_point)};
    auto* dst = static_cast<std::uint8_t*>(out[0].data_ptr());
    return multiply_activations(in[0], in[1], sizes, [&](const cpu::RowOfSums& row) {
      cpu::add_terms(row.sums, row.column_terms, row.row_term, row.count, row.sums);
      cpu::requantize_rows(row.sums, nullptr, 1, row.count, requantize, dst + row.at);
    });
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    multiply_activations_on_cuda(in[0], in[1], matrix_sizes(kName, in[0], in[1]),
                                 {.end = cuda::ActivationProduct::End::Requantize,
                                  .scale = scale_of_sums(in[0], in[1]) / static_cast<float>(scale),
                                  .zero_point = static_cast<std::int32_t>(zero_point)},
                                 out[0]);
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return product_work(in[0], in[1], out[0]);
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = MatmulExact;
    static constexpr std::array kTable{attribute<Self, &Self::scale>("scale"),
                                       attribute<Self, &Self::zero_point>("zero_point")};
    return kTable;
  }
};

struct MatmulToFloat final : Op<MatmulToFloat> {
  static constexpr std::string_view kName = "quantized::matmul_to_float";
  static constexpr ArgumentCount kArguments{2};

  void infer(const Arguments& in, Results& out) const override {
    out.add(infer_codes(kName, in), DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const float scale = scale_of_sums(in[0], in[1]);
    auto* dst = static_cast<float*>(out[0].data_ptr());
    return multiply_activations(in[0], in[1], matrix_sizes(kName, in[0], in[1]),
                                [&](const cpu::RowOfSums& row) {
                                  cpu::sums_row_to_floats(scale, row.sums, row.column_terms,
                                                          row.row_term, row.count, dst + row.at);
                                });
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    multiply_activations_on_cuda(
        in[0], in[1], matrix_sizes(kName, in[0], in[1]),
        {.end = cuda::ActivationProduct::End::Floats, .scale = scale_of_sums(in[0], in[1])},
        out[0]);
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return product_work(in[0], in[1], out[0]);
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
};

}  // namespace
}  // namespace integer

using namespace integer;

Tensor matmul_integer(const Tensor& a, const Tensor& b, const Tensor& a_zero_point,
                      const Tensor& b_zero_point) {
  return run(MatmulInteger{}, a, b, a_zero_point, b_zero_point);
}

QTensor quantized::matmul_exact(const QTensor& lhs, const QTensor& rhs, double scale,
                                std::int64_t zero_point) {
  return QTensor(run(MatmulExact(scale, zero_point), lhs, rhs));
}

Tensor quantized::matmul_to_float(const QTensor& lhs, const QTensor& rhs) {
  return run(MatmulToFloat{}, lhs, rhs);
}

// The catalogue --------------------------------------------------------------------------------

void detail::add_integer(Catalogue& catalogue) {
  static constexpr std::string_view kHeader = "quanta/ops/integer.h";
  catalogue.add({.name = MatmulInteger::kName, .header = kHeader, .dtypes = kBytes},
                [](DType dtype) {
                  return sample_call(MatmulInteger{}, {sample_tensor({2, 3, 5, 4}, dtype),
                                                       sample_tensor({3, 4, 2}, DType::Int8, 2),
                                                       Tensor::ones({}, dtype), Tensor()});
                });
  catalogue.add({.name = MatmulExact::kName, .header = kHeader, .dtypes = dtypes::kQUInt8},
                [](DType dtype) {
                  return sample_call(MatmulExact(0.04, 9), {sample_tensor({2, 3, 5, 4}, dtype),
                                                            sample_tensor({3, 4, 2}, dtype, 2)});
                });
  catalogue.add({.name = MatmulToFloat::kName, .header = kHeader, .dtypes = dtypes::kQUInt8},
                [](DType dtype) {
                  return sample_call(MatmulToFloat{}, {sample_tensor({2, 3, 5, 4}, dtype),
                                                       sample_tensor({3, 4, 2}, dtype, 2)});
                });
}

}  // namespace quanta
