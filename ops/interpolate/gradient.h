#pragma once

// Private: interpolation on the tape, and in Float64.

#include "quanta/ops/interpolate/cpu_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// The taps of a dimension whose positions are copied.
std::vector<cpu::LinearTap> copying_taps(const std::vector<std::int64_t>& sources);

/// x [N, C, spatial...] blended along its spatial dimensions to `sizes`, one dimension after the
/// other; the last ones of the tables belong to them. Contiguous.
Tensor blend(const Tensor& x, const cpu::LinearTables& tables, const Dims& sizes);

/// Records `y`, which is x blended so.
Tensor record_blend(const Tensor& x, Tensor y, const cpu::LinearTables& tables);

}  // namespace quanta::gradients
