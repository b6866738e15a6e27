#pragma once

// Private: dynamic linear layers together with what stands around them. Each gives the bits of the
// ops one by one.

#include <array>
#include <span>
#include <vector>

#include "quanta/ops/linear_dynamic.h"
#include "quanta/runtime/tensor.h"

namespace quanta::quantized::detail {

/// gelu(linear_dynamic(x, packed, reduce_range)) in one pass over the result.
Tensor linear_gelu_dynamic(const Tensor& x, const LinearPackedParams& packed,
                           ReduceRange reduce_range);

/// linear_dynamic(x, packed, reduce_range) + addend in one pass over the result. `addend` is
/// Float32 of the result's sizes.
Tensor linear_add_dynamic(const Tensor& x, const LinearPackedParams& packed,
                          ReduceRange reduce_range, const Tensor& addend);

/// linear_dynamic of x with each of the weights, with x quantized once. All have K features.
std::vector<Tensor> linear_each_dynamic(const Tensor& x,
                                        std::span<const LinearPackedParams* const> packed,
                                        ReduceRange reduce_range);

}  // namespace quanta::quantized::detail
