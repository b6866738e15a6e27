#pragma once

// Private: the kernels of cuda_gradient.h.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/norm_math.h"

namespace quanta::cuda {

/// Normalized x is (x - mean) * inv_std.
struct WideMoments {
  double mean = 0.0;
  double inv_std = 1.0;
};

/// Sums of gradient and of gradient * (x - center) over each channel, in double, in chunks: element
/// k of channel c lies at k * channels + c (channels last), or at
/// (k / volume * channels + c) * volume + k % volume.
struct ChannelSumsParams {
  static constexpr int kMostChunks = 64;
  const float* gradient = nullptr;
  const float* x = nullptr;
  std::int64_t count = 0;  // of each channel
  std::int64_t channels = 0;
  std::int64_t volume = 1;
  bool channels_last = false;
  const double* center = nullptr;        // of each channel; null: 0
  const WideMoments* moments = nullptr;  // [samples, groups]: gradient * normalized x instead
  std::int64_t groups = 1;
  int chunks = 1;
  double* sums = nullptr;  // [chunks, 2, channels]
};
QUANTA_CUDA_ENTRY(find_channel_sums, ChannelSumsParams)

/// The sums of a channel over all chunks, and what follows from them.
struct ChannelTermsParams {
  std::int64_t channels = 0;
  std::int64_t count = 0;
  int chunks = 1;
  const double* sums = nullptr;  // null: they are not needed
  const float* weight = nullptr;
  const float* divisor = nullptr;
  const float* shift = nullptr;
  double eps = 0.0;
  // In training: moments of the batch, and what the running statistics become.
  double momentum = 0.0;
  const float* running_mean = nullptr;
  const float* running_var = nullptr;
  float* moved_mean = nullptr;
  float* moved_var = nullptr;
  double* mean = nullptr;
  double* inv_std = nullptr;
  math::NormMoments* moments = nullptr;
  float* scale = nullptr;
};
QUANTA_CUDA_ENTRY(find_batch_norm_training, ChannelTermsParams)

struct ChannelSlopesParams {
  std::int64_t channels = 0;
  std::int64_t count = 0;
  int chunks = 1;
  const double* sums = nullptr;  // null: they are not needed
  const double* mean = nullptr;
  const double* inv_std = nullptr;  // null: 1
  const float* weight = nullptr;    // null: 1
  const float* divisor = nullptr;   // null: 1
  double eps = 0.0;
  bool of_batch = false;
  // Each may be null.
  math::BatchNormSlope* slopes = nullptr;
  float* for_weight = nullptr;
  float* for_bias = nullptr;
  float* for_divisor = nullptr;
};
QUANTA_CUDA_ENTRY(find_channel_slopes, ChannelSlopesParams)

/// y = gradient * a[c] + (x - mean[c]) * b[c] + c[c], each step in float; without x the first term
/// alone. Element i of dense memory belongs to channel i / inner % channels.
struct ApplySlopesParams {
  std::int64_t count = 0;
  std::int64_t channels = 1;
  std::int64_t inner = 1;
  const float* gradient = nullptr;
  const float* x = nullptr;
  const double* mean = nullptr;
  const math::BatchNormSlope* slopes = nullptr;  // of each channel
  float* y = nullptr;
};
QUANTA_CUDA_ENTRY(apply_channel_slopes, ApplySlopesParams)

/// The gradient of x for a norm of groups of neighbouring elements, [samples, channels, volume].
struct GroupSlopesParams {
  const float* gradient = nullptr;
  const float* x = nullptr;
  const float* weight = nullptr;  // of each channel; null: 1
  std::int64_t groups = 0;        // of all samples
  std::int64_t channels = 1;
  std::int64_t members = 1;  // channels of a group
  std::int64_t volume = 1;
  double eps = 0.0;
  WideMoments* moments = nullptr;  // [groups]: written
  float* y = nullptr;
};
QUANTA_CUDA_ENTRY(find_group_slopes, GroupSlopesParams)

}  // namespace quanta::cuda
