#pragma once

// Kernels that do one instruction of a GPU each, for instruction_test.cpp.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::test {

/// Words that each of 32 lanes gets by load_matrix_x4: r[lane * 4 + matrix].
struct LoadMatrixParams {
  const unsigned char* matrices;  // 4 of 8 rows of 16 bytes
  std::uint32_t* r;
};
QUANTA_CUDA_ENTRY(load_matrices, LoadMatrixParams)

/// multiply_u8s8<2, 2> on sums that are 0: a[lane * 8 + i * 4 + e], b[lane * 4 + j * 2 + e],
/// sums[lane * 16 + (i * 2 + j) * 4 + e].
struct MultiplyParams {
  const std::uint32_t* a;
  const std::uint32_t* b;
  std::int32_t* sums;
};
QUANTA_CUDA_ENTRY(multiply_fragments, MultiplyParams)

/// Two groups of copies of `piece` bytes by each of 32 lanes, from their bytes in `from` to shared
/// memory. After the first is waited for it is copied to `first`, then both to `both`.
struct CopyAsyncParams {
  const unsigned char* from;  // 2 * 32 * piece
  unsigned char* first;       // 32 * piece
  unsigned char* both;
  int piece;  // 4, 8 or 16
};
QUANTA_CUDA_ENTRY(copy_groups, CopyAsyncParams)

/// dot_u8s8 of a[i], b[i] and sums[i], for 32 numbers, in place.
struct DotParams {
  const std::uint32_t* a;
  const std::uint32_t* b;
  std::int32_t* sums;
};
QUANTA_CUDA_ENTRY(dot_bytes, DotParams)

/// half_to_float of all 65536 numbers, and float_to_half of as many others.
struct HalfParams {
  float* floats;
  const float* others;
  std::uint16_t* halves;
};
QUANTA_CUDA_ENTRY(convert_halves, HalfParams)

/// y[mask * 32 + lane]: what the lane gets by shuffle_xor from x; sum: warp_sum of x in each lane.
struct ShuffleParams {
  const float* x;
  float* y;
  float* sum;
};
QUANTA_CUDA_ENTRY(shuffle_lanes, ShuffleParams)

/// 256 threads of each of 8 blocks add their number among all to `count` and `wide`, and bring it,
/// less 1000, to `least` and `most`.
struct AtomicParams {
  std::int32_t* count;
  unsigned long long* wide;
  std::int32_t* least;
  std::int32_t* most;
};
QUANTA_CUDA_ENTRY(meet_in_memory, AtomicParams)

}  // namespace quanta::test
