#pragma once

// Private, for .cu files only: what a kernel may use of the machine. A kernel is a struct
//
//   struct FillFloats {
//     static constexpr const char* kName = "fill_floats";
//     static constexpr int kThreads = 256;      // of a block; a multiple of 32
//     static constexpr int kShared = 0;         // bytes of shared memory
//     static constexpr bool kTogether = false;  // whether threads meet: barriers, warps, copies
//     static constexpr int kBlocks = 2;         // that share a multiprocessor at least; optional
//     using Params = FillParams;
//     static SIMT_DEVICE void run(const Params& p, unsigned char* shared);
//   };
//
// nvcc compiles these names to instructions, any other compiler to the emulation.

#include <cstddef>
#include <cstdint>

#include "quanta/runtime/device.h"

namespace quanta::simt {

/// Blocks.
struct Grid {
  std::int64_t x = 1;
  int y = 1;
  int z = 1;
};

/// As many blocks as `count` elements need when each thread takes one (or several: `each`).
constexpr Grid grid_for(std::int64_t count, int threads = 256, int each = 1) {
  const std::int64_t block = static_cast<std::int64_t>(threads) * each;
  return {(count + block - 1) / block, 1, 1};
}

}  // namespace quanta::simt

#if defined(__CUDACC__)
#include "quanta/runtime/cuda/simt_cuda.h"  // IWYU pragma: export
#else
#include "quanta/runtime/cuda/simt_emulated.h"  // IWYU pragma: export
#endif

namespace quanta::simt {

/// The number of the thread among all that run along x.
SIMT_DEVICE std::int64_t global_thread() {
  return static_cast<std::int64_t>(block_x()) * threads() + thread();
}

/// a / b of numbers that are not negative. A division of 64 bits takes many times as long as one of
/// 32.
SIMT_DEVICE std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) != 0) return a / b;
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

/// Sums over the warp in the order of a tree (lanes 16, 8, 4, 2, 1 apart); every lane gets it.
template <typename T>
SIMT_DEVICE T warp_sum(T value) {
  for (int mask = 16; mask > 0; mask /= 2) value = value + shuffle_xor(value, mask);
  return value;
}

}  // namespace quanta::simt
