#pragma once

// Private: means of whole images of codes, on a CUDA device.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// y[n][c] = float(double(sum of x - pixels * zero point) * scale / pixels) for codes
/// [images, pixels, channels].
struct MeanOfCodesParams {
  const std::uint8_t* x = nullptr;
  float* y = nullptr;
  std::int64_t images = 0;
  std::int64_t pixels = 0;
  int channels = 0;
  double scale = 1.0;
  std::int64_t zero_point = 0;
};
QUANTA_CUDA_ENTRY(mean_of_codes, MeanOfCodesParams)

}  // namespace quanta::cuda
