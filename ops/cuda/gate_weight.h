#pragma once

// Private: the hidden weight of a recurrent layer as its kernels read it on a CUDA device.

#include <cstdint>

namespace quanta::cuda {

/// An int8 weight [gates * units, depth] with what turns its sums into floats. Depth is cut into
/// chunks of 64 codes, with zeros where it ends, and units into blocks of 8: the codes are
///
///   [block][gate][part][chunk][unit of the block][64]
///
/// so that a warp reads 512 bytes at a time. Codes less their zero points are the sum of `parts`
/// int8 numbers.
struct GateWeight {
  static constexpr int kUnits = 8;
  static constexpr int kChunk = 64;

  const std::int8_t* codes = nullptr;
  int units = 0;
  int depth = 0;
  int chunks = 0;
  int parts = 1;
  const float* scales = nullptr;       // [gates * units]
  const std::int32_t* sums = nullptr;  // of codes less their zero points
  const float* bias = nullptr;         // null: none
};

}  // namespace quanta::cuda
