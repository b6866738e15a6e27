#pragma once

// Private: the way back through attention, and the steps that it shares with the way there.

#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/tensor.h"

namespace quanta::attention {

/// attention_weights with zeros for a query that takes part in no key. `mask` may be undefined.
Tensor weights_or_zeros(const Tensor& query, const Tensor& key, const Tensor& mask, double scale,
                        bool is_causal);

/// The gradients of query, key, value and the mask of numbers to add, where they are needed.
std::vector<Tensor> attention_gradients(const autograd::BackwardContext& context, double scale,
                                        bool is_causal);

}  // namespace quanta::attention
