#pragma once

// Private: determinants by elimination in double on a CUDA device: the CPU's steps, each element on
// its own.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Of matrices [count, n, n]. Each is one block's work, so that a single large one keeps but one
/// multiprocessor busy.
struct DeterminantParams {
  static constexpr std::int64_t kInShared = 64;  // rows of a matrix that a block has room for
  bool is_double = false;
  std::int64_t count = 1;
  std::int64_t n = 1;
  const void* x = nullptr;
  double* work = nullptr;  // [count, n, n]; for larger matrices than those
  void* out = nullptr;     // [count]
};
QUANTA_CUDA_ENTRY(find_determinants, DeterminantParams)

}  // namespace quanta::cuda
