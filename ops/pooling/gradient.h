#pragma once

// Private: the way back through pooling.

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::pooling {

/// From the gradient of the maxima of x [N, C, ...] to that of x: it goes to the first of equal
/// maxima.
Tensor max_pool_gradient(const Tensor& gradient, const Tensor& x,
                         const cpu::PoolGeometry& geometry);

/// From the gradient of the means of a tensor of these sizes, [N, C, ...], to that of the tensor.
Tensor avg_pool_gradient(const Tensor& gradient, const Dims& sizes,
                         const cpu::PoolGeometry& geometry, const cpu::AverageRule& rule);

}  // namespace quanta::pooling
