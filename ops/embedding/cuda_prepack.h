#pragma once

// Private: embedding tables packed on a CUDA device.

#include <cstdint>

#include "quanta/ops/embedding/rows.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct PrepackParams {
  detail::EmbeddingRows layout;
  std::int64_t rows = 0;
  const float* weight = nullptr;  // [rows, columns]
  bool narrows = false;           // looks for the range that loses least
  std::int64_t nbins = 1;
  double ratio = 0.0;
  std::uint8_t* packed = nullptr;  // [rows, row_bytes]
  std::int32_t* fault = nullptr;   // raised by a number that is not finite
};
QUANTA_CUDA_ENTRY(prepack_rows, PrepackParams)

}  // namespace quanta::cuda
