// Determinants, by elimination in double.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/matmul/cuda_determinant.h"
#include "quanta/ops/matmul/families.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace matrix_product {
namespace {

/// Of a row-major matrix [n, n], which it overwrites.
double determinant(double* matrix, std::int64_t n) {
  double product = 1.0;
  for (std::int64_t column = 0; column < n; ++column) {
    // The largest number of the column, so that no factor is above 1.
    std::int64_t pivot = column;
    for (std::int64_t row = column + 1; row < n; ++row) {
      if (std::abs(matrix[row * n + column]) > std::abs(matrix[pivot * n + column])) pivot = row;
    }
    if (matrix[pivot * n + column] == 0.0) return 0.0;
    if (pivot != column) {
      std::swap_ranges(matrix + pivot * n, matrix + (pivot + 1) * n, matrix + column * n);
      product = -product;
    }
    const double* top = matrix + column * n;
    product *= top[column];
    for (std::int64_t row = column + 1; row < n; ++row) {
      const double factor = matrix[row * n + column] / top[column];
      for (std::int64_t k = column; k < n; ++k) matrix[row * n + k] -= factor * top[k];
    }
  }
  return product;
}

struct Det final : Op<Det> {
  static constexpr std::string_view kName = "det";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    detail::check_floats(kName, "x", in[0]);
    QUANTA_CHECK(in[0].dim() >= 2 && in[0].size(-1) == in[0].size(-2),
                 "{}: x: expected square matrices, got {}", kName, in[0].sizes());
    Dims sizes = in[0].sizes();
    sizes.resize(sizes.size() - 2);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(sizes, in[0].dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t n = in[0].size(-1);
      std::vector<double> matrix(static_cast<std::size_t>(n * n));
      for (std::int64_t i = 0; i < out[0].numel(); ++i) {
        std::copy_n(in[0].data<T>() + i * n * n, n * n, matrix.begin());
        out[0].mutable_data<T>()[i] = static_cast<T>(determinant(matrix.data(), n));
      }
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t n = in[0].size(-1);
    cuda::Buffer work;
    if (n > cuda::DeterminantParams::kInShared) {
      const auto numbers = static_cast<std::size_t>(in[0].numel());
      work = cuda::Buffer(out[0].device(), numbers * sizeof(double));
    }
    cuda::find_determinants(out[0].device(), {.is_double = in[0].dtype() == DType::Float64,
                                              .count = out[0].numel(),
                                              .n = n,
                                              .x = in[0].device_ptr(),
                                              .work = work.as<double>(),
                                              .out = out[0].device_ptr()});
    return "find_determinants";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }
};

}  // namespace

void add_det(Catalogue& catalogue) {
  catalogue.add({.name = Det::kName, .header = "quanta/ops/matmul.h", .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(Det{}, {sample_tensor({2, 4, 4}, dtype)});
                });
}

}  // namespace matrix_product

Tensor det(const Tensor& x) { return run(matrix_product::Det{}, x); }

}  // namespace quanta
