#pragma once

// Private: fake quantization and its gradients on a CUDA device. Memory is rows, as
// ops/cpu/fake_quantize.h has it, and sums are taken in the CPU's order.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// What becomes of a zero point before it is used.
enum class ZeroPointUse : std::uint8_t { AsGiven, Learned, LearnedBackward };

/// Parameters of channels: arrays on the device, or one pair of numbers.
struct FakeQuantizeQParams {
  const float* scales = nullptr;  // null: `scale` and `zero_point` for all
  const float* zero_points = nullptr;
  float scale = 1.0F;
  float zero_point = 0.0F;
  float min = 0.0F;
  float max = 255.0F;
  bool float_zero_point = false;
  ZeroPointUse use = ZeroPointUse::AsGiven;
};

/// Row r belongs to channel r % channels, or (`all_channels`) holds an element of each.
struct FakeQuantizeRowsOf {
  bool is_double = false;
  bool in_vectors = false;  // rows of floats that begin and end at multiples of 16 bytes
  bool all_channels = false;
  std::int64_t channels = 1;
  std::int64_t count = 0;
  std::int64_t length = 0;
};

/// y = x, fake quantized. Bit i % 8 of byte i / 8 of a row's mask says whether the gradient passes.
struct FakeQuantizeParams {
  FakeQuantizeRowsOf rows;
  FakeQuantizeQParams qparams;
  const void* x = nullptr;
  void* y = nullptr;
  std::uint8_t* mask = nullptr;  // null: not wanted
};
QUANTA_CUDA_ENTRY(fake_quantize_rows, FakeQuantizeParams)

/// y = x where the mask has a bit, else 0.
QUANTA_CUDA_ENTRY(mask_rows, FakeQuantizeParams)

/// Gradients of a learned scale and zero point. Rows of one channel are cut into blocks, whose sums
/// lie in `sums` and are joined for each channel afterwards.
struct LearnedSumsOf {
  double scale = 0.0;
  double zero_point = 0.0;
};
struct LearnedGradientParams {
  FakeQuantizeRowsOf rows;
  FakeQuantizeQParams qparams;
  const void* x = nullptr;
  const void* grad = nullptr;
  void* x_grad = nullptr;
  std::int64_t block = 1;         // elements of a block
  std::int64_t blocks = 1;        // of a row
  LearnedSumsOf* sums = nullptr;  // [rows, blocks]; with all_channels not used
  double factor = 1.0;            // of the results
  double* scale_grad = nullptr;   // [channels]
  double* zero_point_grad = nullptr;
};
QUANTA_CUDA_ENTRY(find_learned_sums, LearnedGradientParams)
QUANTA_CUDA_ENTRY(join_learned_sums, LearnedGradientParams)
/// For all_channels, in place of both.
QUANTA_CUDA_ENTRY(sum_learned_columns, LearnedGradientParams)

}  // namespace quanta::cuda
