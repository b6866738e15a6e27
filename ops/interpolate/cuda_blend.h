#pragma once

// Private: blends of input positions along the spatial dimensions on a CUDA device.

#include <array>
#include <cstdint>

#include "quanta/ops/cpu/resample.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/resample_math.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

struct BlendAxis {
  math::LinearAxis linear;
  const math::LinearTap* table = nullptr;  // on the device: the taps, instead of the rule
};

struct BlendParams {
  std::int64_t count = 0;  // of packs of the result
  std::int64_t pixel = 1;  // packs that lie next to each other and have the same taps
  std::int64_t input[3] = {1, 1, 1};
  std::int64_t output[3] = {1, 1, 1};
  BlendAxis axes[3];
  int spatial = 1;  // how many of the last axes are blended
  int pack = 1;     // elements of a pack: 1 or 4
  DType dtype{};    // Float32, QUInt8 or QInt8
  float zero_point = 0.0F;
  bool is_fused = false;    // see math::first_single_channel
  std::int64_t single = 0;  // the first single channel
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(blend_packs, BlendParams)

/// One dimension by any number of weights, added up in order in Float32 or Float64.
struct WeighParams {
  std::int64_t count = 0;  // of elements of the result
  std::int64_t input = 1;
  std::int64_t output = 1;
  std::int64_t inner = 1;  // elements from one position to the next
  std::int64_t taps = 0;   // for each position
  const std::int64_t* sources = nullptr;
  const float* weights = nullptr;
  DType from_dtype{};  // Float32, Float64, an integer dtype, QUInt8 or QInt8
  DType to_dtype{};
  bool in_double = false;
  math::Fraction fraction{};  // where integers come out
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(weigh_lines, WeighParams)

/// As cpu::blend_spatial does it, to the last bit; x and y are on the device.
void blend(Device device, const cpu::ResampleGeometry& geometry,
           const std::array<BlendAxis, 3>& axes, std::size_t spatial, DType dtype,
           std::int32_t zero_point, bool is_fused, const void* x, void* y);

}  // namespace quanta::cuda
