#pragma once

// Private: triangles of matrices and reversed sequences on a CUDA device. Elements are moved as bits
// of 1, 2, 4 or 8 bytes.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dims.h"

namespace quanta::cuda {

struct TriangleParams {
  std::int64_t count = 0;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t diagonal = 0;
  bool upper = true;  // what lies on the diagonal and above stays, else that and what lies below
  int item_bytes = 1;
  std::uint64_t zero = 0;  // the bits of an element that is 0
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(keep_triangle, TriangleParams)

struct ReverseParams {
  std::int64_t count = 0;
  int rank = 0;
  int time = 0;  // dimensions
  int batch = 0;
  std::int64_t sizes[Dims::kMaxDims] = {};
  std::int64_t strides[Dims::kMaxDims] = {};  // of x; y is contiguous
  const std::int64_t* lengths = nullptr;      // on the device
  int item_bytes = 1;
  const void* x = nullptr;
  void* y = nullptr;
};
QUANTA_CUDA_ENTRY(reverse_sequences, ReverseParams)

}  // namespace quanta::cuda
