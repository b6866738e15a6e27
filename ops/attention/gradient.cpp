#include "quanta/ops/attention/gradient.h"

#include <utility>
#include <vector>

#include "quanta/ops/activation/softmax_gradient.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/runtime/autograd.h"

namespace quanta::attention {
namespace {

using autograd::BackwardContext;
using detail::narrowed;
using detail::widened;

enum Input : std::size_t { kQuery, kKey, kValue, kMask };

}  // namespace

std::vector<Tensor> attention_gradients(const BackwardContext& context, double scale,
                                        bool is_causal) {
  // Floats of 16 bits are widened here, and the gradients rounded once.
  const Tensor query = widened(context.input(kQuery));
  const Tensor key = widened(context.input(kKey));
  const Tensor value = widened(context.input(kValue));
  const Tensor gradient = widened(context.grad());
  std::vector<Tensor> result(4);
  const Tensor weights =
      weights_or_zeros(query, key, widened(context.input(kMask)), scale, is_causal);
  const auto rounded = [&] {
    for (Tensor& each : result) each = narrowed(each, context.input_dtype(kQuery));
    return result;
  };
  if (context.needs(kValue)) {
    result[kValue] =
        autograd::sum_to_size(matmul(weights.transpose(-2, -1), gradient), value.sizes());
  }
  if (!context.needs(kQuery) && !context.needs(kKey) && !context.needs(kMask)) return rounded();
  // Of the sums that softmax took. The weights have fewer leading dimensions where value alone
  // brought some.
  const Tensor for_weights =
      autograd::sum_to_size(matmul(gradient, value.transpose(-2, -1)), weights.sizes());
  const Tensor for_scores = activation::softmax_gradient(for_weights, weights, weights.dim() - 1);
  if (context.needs(kQuery)) {
    result[kQuery] =
        autograd::sum_to_size(mul_scalar(matmul(for_scores, key), scale), query.sizes());
  }
  if (context.needs(kKey)) {
    result[kKey] = autograd::sum_to_size(
        mul_scalar(matmul(for_scores.transpose(-2, -1), query), scale), key.sizes());
  }
  if (context.needs(kMask)) {
    result[kMask] = autograd::sum_to_size(for_scores, context.input_sizes(kMask));
  }
  return rounded();
}

}  // namespace quanta::attention
