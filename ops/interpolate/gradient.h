#pragma once

// Private: the way back through an interpolation, and interpolation of Float64.

#include "quanta/ops/interpolate/cpu_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::interpolation {

/// The taps of a dimension whose positions are copied.
std::vector<cpu::LinearTap> copying_taps(const std::vector<std::int64_t>& sources);

/// x [N, C, spatial...] blended along its spatial dimensions to `sizes`, one dimension after the
/// other; the last ones of the tables belong to them. Contiguous.
Tensor blend(const Tensor& x, const cpu::LinearTables& tables, const Dims& sizes);

/// From the gradient of such a blend to that of x, which has these sizes.
Tensor blend_gradient(const Tensor& gradient, const cpu::LinearTables& tables, const Dims& sizes);

}  // namespace quanta::interpolation
