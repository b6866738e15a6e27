#pragma once

// Private: normalizations over whole tensors, on the kernels of cpu_kernels.h. Everything is dense.

#include <cstdint>

#include "quanta/ops/norm/cpu_kernels.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// Batch, channels, everything behind them.
struct NormGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t volume = 1;
  bool channels_last = false;

  NormGeometry(const Tensor& x, MemoryFormat format);
};

/// x [samples, channels, volume]: each of `groups` groups of channels of a sample has its
/// statistics, each channel its weight. A layer norm has one group and a volume of 1.
struct GroupShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t volume = 1;
  std::int64_t groups = 1;

  std::int64_t members() const noexcept { return channels / groups; }
  std::int64_t count() const noexcept { return members() * volume; }
};

/// What goes in and out: Float32, or codes.
struct NormCall {
  DType dtype;
  const void* src;
  const float* weight;  ///< of each channel
  const float* bias;
  void* dst;
  NormOutput output;
};

/// dst = quantize((x - center) * weight[c] + bias[c]).
void norm_per_channel(const NormGeometry& geometry, const NormCall& call, float center);

/// By the statistics of each group. `scale` is that of the codes, 1 for floats.
void norm_groups(const NormGeometry& geometry, std::int64_t groups, const NormCall& call,
                 double scale, double eps);
/// By those of each of `rows` rows of `count` neighbouring elements.
void norm_each_row(std::int64_t rows, std::int64_t count, const NormCall& call, double scale,
                   double eps);

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
