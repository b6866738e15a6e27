#pragma once

// Private: lp_normalize and local_response_norm on a CUDA device, Float32 or Float64. Sums are added
// in the CPU's order, so that results are the CPU's but for pow (runtime/detail/power_math.h). All
// tensors are contiguous.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Lines of [outer, width, inner] along the middle.
struct LpNormalizeParams {
  bool is_double = false;
  std::int64_t outer = 1;
  std::int64_t width = 1;
  std::int64_t inner = 1;
  double p = 2.0;
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(lp_normalize_lines, LpNormalizeParams)

/// Of [images, channels, volume]: each element looks at the channels around its own.
struct LocalResponseParams {
  bool is_double = false;
  std::int64_t images = 1;
  std::int64_t channels = 1;
  std::int64_t volume = 1;
  std::int64_t before = 0;  // channels that it looks at
  std::int64_t behind = 0;
  double factor = 0.0;
  double beta = 0.0;
  double bias = 0.0;
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(normalize_local_responses, LocalResponseParams)

}  // namespace quanta::cuda
