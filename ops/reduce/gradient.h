#pragma once

// Private: reductions on the tape. Each `y` is the result of the op; `dims` may be empty (all) and
// count from the end.

#include "quanta/ops/reduce.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// Sums (`divisor` 1) and means (`divisor`: how many elements each is of).
Tensor record_sum(std::string_view op, const Tensor& x, const Dims& dims, Tensor y, double divisor);
Tensor record_var(const Tensor& x, const Dims& dims, const StdOptions& options, Tensor y);
Tensor record_std(const Tensor& x, const Dims& dims, const StdOptions& options, Tensor y);
/// The largest or smallest element of all; equal ones share the gradient, as in torch.
Tensor record_extreme(std::string_view op, const Tensor& x, Tensor y);
/// Notes that `values` were picked along `dim` by `indices` of the same sizes, with or without that
/// dimension.
void record_picked(std::string_view op, const Tensor& x, std::int64_t dim, const Tensor& values,
                   const Tensor& indices);

}  // namespace quanta::gradients
