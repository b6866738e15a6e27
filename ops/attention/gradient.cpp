#include "quanta/ops/attention/gradient.h"

#include <utility>
#include <vector>

#include "quanta/ops/activation/softmax_gradient.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/autograd.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;

enum Input : std::size_t { kQuery, kKey, kValue, kMask };

std::vector<Tensor> attention_gradients(const BackwardContext& context,
                                        const AttentionRecord& record) {
  const Tensor query = context.saved(kQuery);
  const Tensor key = context.saved(kKey);
  const Tensor value = context.saved(kValue);
  Tensor mask = context.saved(kMask);
  const Tensor& gradient = context.grad();
  std::vector<Tensor> result(4);
  const Dims mask_sizes = mask.defined() ? mask.sizes() : Dims{};
  if (record.is_causal) {
    mask = detail::causal_mask(query.size(-2), key.size(-2), query.dtype());
  }
  const Tensor weights = detail::attention_weights_or_zeros(query, key, mask, record.scale);
  if (context.needs(kValue)) {
    result[kValue] =
        autograd::sum_to_size(matmul(weights.transpose(-2, -1), gradient), value.sizes());
  }
  if (!context.needs(kQuery) && !context.needs(kKey) && !context.needs(kMask)) return result;
  // Of the sums that softmax took. The weights have fewer leading dimensions where value alone
  // brought some.
  const Tensor for_weights =
      autograd::sum_to_size(matmul(gradient, value.transpose(-2, -1)), weights.sizes());
  const Tensor for_scores = activation::softmax_gradient(for_weights, weights, weights.dim() - 1);
  if (context.needs(kQuery)) {
    result[kQuery] =
        autograd::sum_to_size(mul_scalar(matmul(for_scores, key), record.scale), query.sizes());
  }
  if (context.needs(kKey)) {
    result[kKey] = autograd::sum_to_size(
        mul_scalar(matmul(for_scores.transpose(-2, -1), query), record.scale), key.sizes());
  }
  if (context.needs(kMask)) result[kMask] = autograd::sum_to_size(for_scores, mask_sizes);
  return result;
}

}  // namespace

Tensor record_attention(Tensor y, const Tensor& query, const Tensor& key, const Tensor& value,
                        const Tensor& mask, const AttentionRecord& record) {
  return autograd::record("scaled_dot_product_attention", {query, key, value, mask}, std::move(y),
                          {query, key, value, mask}, [record](const BackwardContext& context) {
                            return attention_gradients(context, record);
                          });
}

}  // namespace quanta::gradients
