#pragma once

// Private: normalizations on a CUDA device. Sums are taken in the CPU's order. Floats of 16 bits are
// widened and rounded once.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/norm_math.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// Sum and sum of squares.
struct NormSums {
  double sum = 0.0;
  double squares = 0.0;
};

/// The statistics of groups of elements.
struct NormMomentsParams {
  DType dtype{};
  const void* x = nullptr;
  std::int64_t groups = 0;  // of all samples
  std::int64_t count = 0;   // elements of a group
  double scale = 1.0;
  double eps = 0.0;
  math::NormMoments* moments = nullptr;  // [groups]
  // Channels last: a group's channels lie side by side, its elements do not.
  std::int64_t channels = 0;
  std::int64_t members = 0;  // channels of a group
  std::int64_t volume = 0;
  NormSums* sums = nullptr;  // [samples, channels]
};
/// Of groups whose elements are neighbours.
QUANTA_CUDA_ENTRY(find_norm_moments, NormMomentsParams)
/// The sums of each channel of each sample, and then the statistics of groups of them.
QUANTA_CUDA_ENTRY(find_norm_channel_sums, NormMomentsParams)
QUANTA_CUDA_ENTRY(join_norm_channel_sums, NormMomentsParams)

/// y = (x - center) * scale + shift, quantized where y has codes. Element i of dense memory belongs
/// to channel i / inner % channels.
struct NormalizeParams {
  DType dtype{};
  const void* x = nullptr;
  void* y = nullptr;
  std::int64_t count = 0;
  std::int64_t channels = 1;
  std::int64_t inner = 1;
  std::int64_t sample = 1;                     // elements of a sample
  const math::NormMoments* moments = nullptr;  // of each group; null: center, and 1
  std::int64_t groups = 1;                     // of a sample
  float center = 0.0F;
  DType parameters = DType::Float32;  // of scale and shift
  const void* scale = nullptr;        // of each channel, times that of the moments; null: 1
  const void* shift = nullptr;        // null: 0
  float inv_scale = 1.0F;
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  std::int32_t high = 0;
};
QUANTA_CUDA_ENTRY(normalize, NormalizeParams)

/// Two numbers for each channel of a batch norm by given statistics.
struct BatchNormTermsParams {
  std::int64_t channels = 0;
  DType dtype = DType::Float32;  // of the four
  const void* mean = nullptr;
  const void* var = nullptr;
  const void* weight = nullptr;  // null: 1
  const void* bias = nullptr;    // null: 0
  double eps = 0.0;
  bool of_codes = false;
  double scale_in = 1.0;
  double scale_out = 1.0;
  float* scale = nullptr;
  float* shift = nullptr;
  double* statistics = nullptr;  // [2, channels]: mean and 1 / sqrt(var + eps); null: not wanted
};
QUANTA_CUDA_ENTRY(find_batch_norm_terms, BatchNormTermsParams)

/// What becomes of rows of neighbouring floats.
enum class RowStep : std::uint8_t {
  RmsNorm,     ///< y = x / sqrt(mean of squares + eps) * weight
  Statistics,  ///< y = mean, second = 1 / sqrt(variance + eps)
};
struct NormRowsParams {
  RowStep step = RowStep::RmsNorm;
  DType dtype = DType::Float32;  // of all
  const void* x = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* weight = nullptr;  // null: 1
  double eps = 0.0;
  void* y = nullptr;
  void* second = nullptr;
};
QUANTA_CUDA_ENTRY(normalize_rows, NormRowsParams)

}  // namespace quanta::cuda
