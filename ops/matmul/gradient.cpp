#include "quanta/ops/matmul/gradient.h"

#include "quanta/ops/matmul.h"

namespace quanta::matrix_product {

std::vector<Tensor> product_gradient(const autograd::BackwardContext& context) {
  const Dims& lhs_sizes = context.input_sizes(0);
  const Dims& rhs_sizes = context.input_sizes(1);
  // A vector stands for a row on the left, a column on the right.
  const bool lhs_is_row = lhs_sizes.size() == 1;
  const bool rhs_is_column = rhs_sizes.size() == 1;
  Tensor gradient = context.grad();
  if (lhs_is_row) gradient = gradient.unsqueeze(rhs_is_column ? -1 : -2);
  if (rhs_is_column) gradient = gradient.unsqueeze(-1);
  std::vector<Tensor> results(2);
  if (context.needs(0)) {
    const Tensor rhs = context.input(1);
    const Tensor right = rhs_is_column ? rhs.unsqueeze(1) : rhs;
    Dims sizes = lhs_sizes;
    if (lhs_is_row) sizes.insert(0, 1);
    results[0] =
        autograd::sum_to_size(matmul(gradient, right.transpose(-2, -1)), sizes).view(lhs_sizes);
  }
  if (context.needs(1)) {
    const Tensor lhs = context.input(0);
    const Tensor left = lhs_is_row ? lhs.unsqueeze(0) : lhs;
    Dims sizes = rhs_sizes;
    if (rhs_is_column) sizes.push_back(1);
    results[1] =
        autograd::sum_to_size(matmul(left.transpose(-2, -1), gradient), sizes).view(rhs_sizes);
  }
  return results;
}

}  // namespace quanta::matrix_product
