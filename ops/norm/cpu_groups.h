#pragma once

// Private: normalizations over whole tensors, on the kernels of cpu_kernels.h.

#include <cstdint>

#include "quanta/ops/cpu/shared_range.h"
#include "quanta/ops/norm/call.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

using norm::GroupShape;
using norm::NormCall;
using norm::NormGeometry;

/// dst = quantize((x - center) * weight[c] + bias[c]).
void norm_per_channel(const NormGeometry& geometry, const NormCall& call, float center);

/// By the statistics of each group. `scale` is that of the codes, 1 for floats.
void norm_groups(const NormGeometry& geometry, std::int64_t groups, const NormCall& call,
                 double scale, double eps);
/// By those of each of `rows` rows of `count` neighbouring elements. The range of floats that come
/// out is added to `range`, unless that is null.
void norm_each_row(std::int64_t rows, std::int64_t count, const NormCall& call, double scale,
                   double eps, SharedRange* range = nullptr);

/// The same for Float64, contiguous, in plain loops; weight and bias may be undefined.
void norm_groups_double(const GroupShape& shape, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, double eps, const Tensor& out);

/// Mean and 1 / sqrt(variance + eps), in two passes.
struct GroupMoments {
  double mean = 0.0;
  double inv_std = 0.0;
};
GroupMoments group_moments(const float* x, std::int64_t count, double eps);
GroupMoments group_moments(const double* x, std::int64_t count, double eps);

}  // namespace quanta::cpu
