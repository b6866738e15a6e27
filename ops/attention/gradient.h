#pragma once

// Private: attention on the tape, and the steps that it shares with ops/attention/attention.cpp.

#include <cstdint>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// The lower triangle, as numbers to add.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, DType dtype);

/// attention_weights with zeros for a query that takes part in no key. `mask` may be undefined.
Tensor attention_weights_or_zeros(const Tensor& query, const Tensor& key, const Tensor& mask,
                                  double scale);

}  // namespace quanta::detail

namespace quanta::gradients {

struct AttentionRecord {
  double scale;
  bool is_causal;
};
/// Records that `y` is the attention of the others. `mask` holds numbers to add, or is undefined.
/// The weights are calculated again on the way back: they take more memory than all the inputs.
Tensor record_attention(Tensor y, const Tensor& query, const Tensor& key, const Tensor& value,
                        const Tensor& mask, const AttentionRecord& record);

}  // namespace quanta::gradients
