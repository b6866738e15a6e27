#include "quanta/ops/reduce/gradient.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/detail/pointwise_gradient.h"
#include "quanta/ops/indexing/gradient.h"
#include "quanta/runtime/autograd.h"

namespace quanta::gradients {
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

std::int64_t count_of(const Dims& sizes, const Dims& dims) {
  if (dims.empty()) return product(sizes);
  const auto rank = static_cast<std::int64_t>(sizes.size());
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (rank > 0) count *= sizes[static_cast<std::size_t>((dim + rank) % rank)];
  }
  return count;
}

// x - its mean over `dims`, and the factor that the gradient of the variance has before it.
Tensor differences(const Tensor& x, const Dims& dims) {
  return sub(x, mean(x, dims, {.keepdim = true}));
}
double variance_factor(const Dims& sizes, const Dims& dims, double correction) {
  return 2.0 / std::max(0.0, static_cast<double>(count_of(sizes, dims)) - correction);
}

}  // namespace

Tensor record_sum(std::string_view op, const Tensor& x, const Dims& dims, Tensor y,
                  double divisor) {
  return autograd::record(
      op, {x}, std::move(y), {},
      [sizes = x.sizes(), dims, divisor](const BackwardContext& backward) {
        const Tensor& gradient = backward.grad();
        const Tensor share = divisor == 1.0 ? gradient : mul_scalar(gradient, 1.0 / divisor);
        return std::vector<Tensor>{with_reduced(share, sizes, dims).expand(sizes)};
      });
}

Tensor record_var(const Tensor& x, const Dims& dims, const StdOptions& options, Tensor y) {
  return autograd::record(
      "var", {x}, std::move(y), {x},
      [dims, correction = options.correction](const BackwardContext& backward) {
        const Tensor x = backward.saved(0);
        const Tensor share = with_reduced(backward.grad(), x.sizes(), dims);
        return std::vector<Tensor>{mul(
            mul_scalar(differences(x, dims), variance_factor(x.sizes(), dims, correction)), share)};
      });
}

Tensor record_std(const Tensor& x, const Dims& dims, const StdOptions& options, Tensor y) {
  const Tensor result = y;
  return autograd::record(
      "std", {x}, std::move(y), {x, result},
      [dims, correction = options.correction](const BackwardContext& backward) {
        const Tensor x = backward.saved(0);
        // Nothing comes from elements that are all equal, as in torch.
        const Tensor share = detail::map_pair(backward.grad(), backward.saved(1), [](auto g, auto std) {
          return std == decltype(std){0} ? decltype(std){0} : g / (std + std);
        });
        return std::vector<Tensor>{
            mul(mul_scalar(differences(x, dims), variance_factor(x.sizes(), dims, correction)),
                with_reduced(share, x.sizes(), dims))};
      });
}

Tensor record_extreme(std::string_view op, const Tensor& x, Tensor y) {
  const Tensor result = y;
  return autograd::record(op, {x}, std::move(y), {x, result}, [](const BackwardContext& backward) {
    const Tensor x = backward.saved(0);
    const Tensor best = backward.saved(1);
    // A NaN is the extreme where there is one, and equals nothing.
    const Tensor is_best = best.item() == best.item() ? eq(x, best) : ne(x, x);
    const Tensor mask = is_best.to(x.dtype());
    return std::vector<Tensor>{mul(mask, div(backward.grad(), sum(mask)))};
  });
}

void record_picked(std::string_view op, const Tensor& x, std::int64_t dim, const Tensor& values,
                   const Tensor& indices) {
  const std::array outputs{values, indices};
  const std::array saved{indices};
  autograd::record(op, {&x, 1}, outputs, saved,
                   [sizes = x.sizes(), dim](const BackwardContext& backward) {
                     Tensor gradient = backward.grad(0);
                     Tensor index = backward.saved(0);
                     if (index.sizes().size() < sizes.size()) {
                       gradient = gradient.unsqueeze(dim);
                       index = index.unsqueeze(dim);
                     }
                     return std::vector<Tensor>{
                         scatter_add(gradient, positions_along(index, dim, sizes), sizes)};
                   });
}

}  // namespace quanta::gradients
