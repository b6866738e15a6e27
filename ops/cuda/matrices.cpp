#include "quanta/ops/cuda/matrices.h"

#include <algorithm>
#include <optional>

#include "quanta/ops/cuda/library_loops.h"

namespace quanta::cuda {
namespace {

struct Matrices {
  Tensor tensor;  // that holds them
  MatrixLayout layout;
};

// How the last two dimensions lie, where the libraries can read them.
std::optional<MatrixLayout> layout_of_matrix(const Tensor& x) {
  const std::int64_t rows = x.size(-2);
  const std::int64_t columns = x.size(-1);
  const Dims& strides = x.strides();
  const std::int64_t row_stride = strides[strides.size() - 2];
  const std::int64_t column_stride = strides.back();
  // The stride of a dimension of size 1 says nothing.
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns)) {
    return MatrixLayout{rows == 1 ? columns : row_stride, 0, false};
  }
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows)) {
    return MatrixLayout{columns == 1 ? rows : column_stride, 0, true};
  }
  return std::nullopt;
}

// The one stride from each matrix to the next, where there is one.
std::optional<std::int64_t> batch_stride_of(const Tensor& x) {
  std::int64_t stride = 0;
  std::int64_t count = 1;  // matrices of the dimensions behind this one
  for (std::size_t d = x.sizes().size() - 2; d-- > 0;) {
    if (x.sizes()[d] == 1) continue;
    if (count == 1) {
      stride = x.strides()[d];
    } else if (x.strides()[d] != stride * count) {
      return std::nullopt;
    }
    count *= x.sizes()[d];
  }
  return stride;
}

std::optional<MatrixLayout> layout_of(const Tensor& x) {
  std::optional<MatrixLayout> layout = layout_of_matrix(x);
  const std::optional<std::int64_t> batch_stride = batch_stride_of(x);
  if (!layout || !batch_stride) return std::nullopt;
  layout->batch_stride = *batch_stride;
  return layout;
}

// With the batch dimensions of the result.
Matrices expanded(const Tensor& x, const Tensor& out) {
  Dims sizes = out.sizes();
  sizes[sizes.size() - 2] = x.size(-2);
  sizes[sizes.size() - 1] = x.size(-1);
  Tensor all = x.expand(sizes);
  std::optional<MatrixLayout> layout = layout_of(all);
  if (!layout) {
    all = all.contiguous();
    layout = layout_of(all);
  }
  return {all, *layout};
}

}  // namespace

std::string_view multiply(const Tensor& lhs, const Tensor& rhs, const ProductEndings& endings,
                          const Tensor& out) {
  const Matrices left = expanded(lhs, out);
  const Matrices right = expanded(rhs, out);
  FloatProduct product;
  product.dtype = out.dtype();
  product.rows = out.size(-2);
  product.columns = out.size(-1);
  product.batch = out.numel() / (product.rows * product.columns);
  product.depth = left.tensor.size(-1);
  product.lhs = left.layout;
  product.rhs = right.layout;
  product.out = {product.columns, product.rows * product.columns, false};
  // One right matrix for all left ones, which lie one below the other: one product.
  const MatrixLayout& above = left.layout;
  if (right.layout.batch_stride == 0 && !above.transposed &&
      above.batch_stride == product.rows * above.stride) {
    product.rows *= product.batch;
    product.batch = 1;
  }
  if (product.batch == 1) {
    product.lhs.batch_stride = product.rhs.batch_stride = product.out.batch_stride = 0;
  }
  product.has_bias = endings.bias.defined();
  const std::string_view kernel =
      multiply_floats(out.device(), product,
                      {.lhs = left.tensor.device_ptr(),
                       .rhs = right.tensor.device_ptr(),
                       .bias = product.has_bias ? endings.bias.device_ptr() : nullptr,
                       .out = out.device_ptr()});
  if (endings.relu) {
    add_bias(out.device(), {.dtype = out.dtype(),
                            .count = out.numel(),
                            .channels = product.columns,
                            .y = out.device_ptr(),
                            .relu = true});
  }
  return kernel;
}

}  // namespace quanta::cuda
