#pragma once

// Private: what the encoders share.

#include "quanta/ops/attention.h"
#include "quanta/runtime/tensor.h"

namespace quanta::nn::models::detail {

/// Attention of `heads` heads on projections [batch, steps, features], joined again.
inline Tensor attend_heads(const Tensor& query, const Tensor& key, const Tensor& value,
                           std::int64_t heads, const Tensor& mask = {},
                           DType attention_dtype = DType::Float32) {
  const auto split = [&](const Tensor& x) {
    const Dims& sizes = x.sizes();
    return x.reshape({sizes[0], sizes[1], heads, sizes[2] / heads}).transpose(1, 2);
  };
  const Tensor joined = scaled_dot_product_attention(split(query), split(key), split(value), mask,
                                                     {.attention_dtype = attention_dtype})
                            .transpose(1, 2);
  return joined.reshape(query.sizes());
}

}  // namespace quanta::nn::models::detail
