#pragma once

// Private: the way back through softmax and log_softmax of floats on a CUDA device. Sums are taken
// one element after the other in double, as the CPU takes them; the exponentials of log_softmax are
// those of CUDA's library. Floats of 16 bits are widened, and the gradients rounded once.

#include <cstdint>

#include "quanta/ops/cuda/softmax.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// Softmax: dst = y * (gradient - sum of gradient * y). LogSoftmax: dst = gradient - exp(y) * sum of
/// gradient. Sums are those of a line.
struct SoftmaxSlopeParams {
  SoftmaxKind kind{};
  DType dtype{};  // Float32, Float16 or BFloat16
  const void* gradient = nullptr;
  const void* y = nullptr;
  void* dst = nullptr;
  std::int64_t lines = 0;
  std::int64_t length = 0;  // of a line
  std::int64_t inner = 1;   // elements of a line lie so far apart; as many lines lie side by side
};
QUANTA_CUDA_ENTRY(softmax_slopes, SoftmaxSlopeParams)

}  // namespace quanta::cuda
