#pragma once

// Private: dynamic block quantization on a CUDA device.

#include <cstdint>

#include "quanta/runtime/block_math.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// As cpu::dynamic_block_row, for all rows: rows of `length` floats lie one behind the other, and
/// the last block of each may be short.
struct BlockQuantParams {
  math::BlockFormat format;
  std::int64_t count = 0;   // blocks of all rows
  std::int64_t length = 0;  // elements of a row
  std::int64_t block = 0;   // elements of a block
  std::int64_t blocks = 0;  // of a row
  const float* src = nullptr;
  float* dst = nullptr;
  float* unscales = nullptr;  // [count]
};
QUANTA_CUDA_ENTRY(quantize_blocks, BlockQuantParams)

}  // namespace quanta::cuda
