#pragma once

// Private: the gradients of reductions. `dims` may be empty (all) and count from the end.

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/tensor.h"

namespace quanta::reduction {

/// Of sums, which need nothing else.
Tensor sum_gradient(const autograd::BackwardContext& context, const Dims& dims);
/// The same divided by the number of elements in each mean.
Tensor mean_gradient(const autograd::BackwardContext& context, const Dims& dims);
/// Asks for x.
Tensor var_gradient(const autograd::BackwardContext& context, const Dims& dims, double correction);
/// Asks for x and the result.
Tensor std_gradient(const autograd::BackwardContext& context, const Dims& dims, double correction);
/// Of the largest or smallest element of all; equal ones share the gradient, as in torch. Asks for
/// x and the result.
Tensor extreme_gradient(const autograd::BackwardContext& context);
/// Of values that were picked along `dim` by the indices that are result 1, with or without that
/// dimension. Asks for those.
Tensor picked_gradient(const autograd::BackwardContext& context, std::int64_t dim);

}  // namespace quanta::reduction
