#pragma once

// Private: softmax and log_softmax on a CUDA device, of floats and of codes. Those of 16 bits are
// widened and rounded once. Sums are taken in the CPU's order, and exp is runtime/detail/exp_math.h's: the floats are the CPU's to the last bit. The
// log of a line's sum is CUDA's, in double (math::log_float says what that means).

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

enum class SoftmaxKind : std::uint8_t { Softmax, LogSoftmax };

struct SoftmaxParams {
  SoftmaxKind kind{};
  DType dtype{};
  const void* x = nullptr;
  void* y = nullptr;  // may be x
  std::int64_t lines = 0;
  std::int64_t length = 0;  // of a line, > 0
  std::int64_t inner = 1;   // elements of a line lie so far apart; as many lines lie side by side
  // Of codes.
  float scale_in = 1.0F;
  std::int32_t zero_point_in = 0;
  float inv_scale = 1.0F;
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  std::int32_t high = 0;
};
/// Lines of neighbouring elements, and lines that lie side by side.
QUANTA_CUDA_ENTRY(softmax_rows, SoftmaxParams)
QUANTA_CUDA_ENTRY(softmax_lines, SoftmaxParams)

}  // namespace quanta::cuda
