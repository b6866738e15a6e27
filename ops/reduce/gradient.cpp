#include "quanta/ops/reduce/gradient.h"

#include <algorithm>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/detail/pointwise_gradient.h"
#include "quanta/ops/detail/scatter.h"
#include "quanta/ops/reduce.h"

namespace quanta::reduction {
namespace {

using autograd::BackwardContext;

// A tensor of the reduced sizes with dimensions of size 1 in the places of the reduced ones.
Tensor with_reduced(const Tensor& result, const Dims& sizes, const Dims& dims) {
  Dims kept = sizes;
  for (std::int64_t& size : kept) size = dims.empty() ? 1 : size;
  const auto rank = static_cast<std::int64_t>(sizes.size());
  if (rank > 0) {
    for (const std::int64_t dim : dims) kept[static_cast<std::size_t>((dim + rank) % rank)] = 1;
  }
  return result.reshape(kept);
}

std::int64_t count_reduced(const Dims& sizes, const Dims& dims) {
  if (dims.empty()) return product(sizes);
  const auto rank = static_cast<std::int64_t>(sizes.size());
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (rank > 0) count *= sizes[static_cast<std::size_t>((dim + rank) % rank)];
  }
  return count;
}

Tensor spread_back(const Tensor& gradient, const Dims& sizes, const Dims& dims) {
  return with_reduced(gradient, sizes, dims).expand(sizes);
}

// x - its mean over `dims`, times the factor that the gradient of the variance has before it.
Tensor scaled_differences(const Tensor& x, const Dims& dims, double correction) {
  const double divisor =
      std::max(0.0, static_cast<double>(count_reduced(x.sizes(), dims)) - correction);
  return mul_scalar(sub(x, mean(x, dims, {.keepdim = true})), 2.0 / divisor);
}

}  // namespace

Tensor sum_gradient(const BackwardContext& context, const Dims& dims) {
  return spread_back(context.grad(), context.input_sizes(0), dims);
}

Tensor mean_gradient(const BackwardContext& context, const Dims& dims) {
  const Dims& sizes = context.input_sizes(0);
  const auto count = static_cast<double>(count_reduced(sizes, dims));
  const Tensor& gradient = context.grad();
  return spread_back(count == 1.0 ? gradient : mul_scalar(gradient, 1.0 / count), sizes, dims);
}

Tensor var_gradient(const BackwardContext& context, const Dims& dims, double correction) {
  const Tensor x = context.input(0);
  return mul(scaled_differences(x, dims, correction),
             with_reduced(context.grad(), x.sizes(), dims));
}

Tensor std_gradient(const BackwardContext& context, const Dims& dims, double correction) {
  const Tensor x = context.input(0);
  // Nothing comes from elements that are all equal, as in torch.
  const Tensor share = detail::map_pair(context.grad(), context.output(), [](auto g, auto std) {
    return std == decltype(std){0} ? decltype(std){0} : g / (std + std);
  });
  return mul(scaled_differences(x, dims, correction), with_reduced(share, x.sizes(), dims));
}

Tensor extreme_gradient(const BackwardContext& context) {
  const Tensor x = context.input(0);
  const Tensor best = context.output();
  // A NaN is the extreme where there is one, and equals nothing.
  const Tensor is_best = best.item() == best.item() ? eq(x, best) : ne(x, x);
  const Tensor mask = is_best.to(x.dtype());
  return mul(mask, div(context.grad(), sum(mask)));
}

Tensor picked_gradient(const BackwardContext& context, std::int64_t dim) {
  const Dims& sizes = context.input_sizes(0);
  const std::int64_t d = wrap_dim(dim, static_cast<std::int64_t>(sizes.size()), "backward");
  Tensor gradient = context.grad(0);
  Tensor index = context.output(1);
  if (index.sizes().size() < sizes.size()) {
    gradient = gradient.unsqueeze(d);
    index = index.unsqueeze(d);
  }
  return detail::scatter_add(gradient, detail::positions_along(index, d, sizes), sizes,
                             detail::Places::Distinct);
}

}  // namespace quanta::reduction
