#pragma once

// Private: the tape's part of pooling.

#include <cstddef>
#include <string_view>

#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// Records that `y` holds the maxima (adaptive windows too) of x [N, C, ...] or [C, ...] with
/// `spatial` dimensions. The gradient goes to the first of equal maxima.
Tensor record_max_pool(std::string_view op, Tensor y, const Tensor& x, std::size_t spatial,
                       const cpu::PoolGeometry& geometry);

/// Records that `y` holds the means.
Tensor record_avg_pool(std::string_view op, Tensor y, const Tensor& x, std::size_t spatial,
                       const cpu::PoolGeometry& geometry, const cpu::AverageRule& rule);

}  // namespace quanta::gradients
