#pragma once

// Private: cast on a CUDA device.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// Dense elements of plain dtypes in one order.
struct CastParams {
  std::int64_t count = 0;
  DType from_dtype{};
  DType to_dtype{};
  bool saturates = false;  // Float8: what is too large becomes the largest number
  int bits = 8;            // of Int8 and UInt8
  const void* from = nullptr;
  void* to = nullptr;
};
QUANTA_CUDA_ENTRY(cast_items, CastParams)

}  // namespace quanta::cuda
