#pragma once

// Private: the affine map that every normalization ends with, and the statistics before it.

#include <cstdint>

#include "quanta/ops/norm/call.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cpu {

using norm::NormOutput;

/// dst[i] = quantize((src[i] - center) * scale + shift) for i in [0, count). Each number is float32
/// and each step is rounded, so that no instruction set gives other codes. `dtype` is QUInt8 or
/// QInt8 (codes in, codes out) or Float32 (no quantize).
void norm_run(DType dtype, const void* src, float center, float scale, float shift,
              std::int64_t count, const NormOutput& output, void* dst);

/// norm_run with scale[i] and shift[i].
void norm_row(DType dtype, const void* src, float center, const float* scale, const float* shift,
              std::int64_t count, const NormOutput& output, void* dst);

/// norm_run with center[i], scale[i] and shift[i].
void norm_channels(DType dtype, const void* src, const float* center, const float* scale,
                   const float* shift, std::int64_t count, const NormOutput& output, void* dst);

/// norm_channels for each of `rows` neighbouring rows of `channels` elements.
void norm_rows(DType dtype, const void* src, const float* center, const float* scale,
               const float* shift, std::int64_t rows, std::int64_t channels,
               const NormOutput& output, void* dst);

/// The scalar form of norm_run, norm_row and norm_channels; a step of 0 repeats the first number.
struct NormParameters {
  const float* center;
  const float* scale;
  const float* shift;
  std::int64_t center_step;
  std::int64_t scale_step;  ///< of scale and shift
};
void norm_reference(DType dtype, const void* src, const NormParameters& parameters,
                    std::int64_t count, const NormOutput& output, void* dst);

/// Sum and sum of squares of codes (exact integers) or of floats (in double).
struct NormSums {
  double sum = 0.0;
  double squares = 0.0;
};
/// Sum and sum of squares of codes as integers.
struct CodeSums {
  std::int64_t sum = 0;
  std::int64_t squares = 0;
};
NormSums norm_sums(DType dtype, const void* src, std::int64_t count);
/// Adds those of `channels` neighbouring columns of `rows` rows to sums[channels].
void norm_channel_sums(DType dtype, const void* src, std::int64_t rows, std::int64_t channels,
                       NormSums* sums);

}  // namespace quanta::cpu
