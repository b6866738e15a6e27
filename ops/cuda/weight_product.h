#pragma once

// Private: products of float activations with weights that are stored in fewer bits, on a CUDA
// device. Each result is calculated in one order, whichever kernel is taken:
//
//   chain = the fused multiply-adds of x[k] * (code[k] - zero point), in the order of k, over a
//           segment: kBlock products, or a group where that is shorter
//   block = the fused multiply-adds of scale * chain over the segments of kBlock products
//   y     = the sum of the blocks, one after the other, plus bias
//
// so that a row's results depend on nothing but that row. Float16 weights have one segment a block
// and no scale: the order of cpu/gemm/half_product.cpp.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

enum class WeightForm : std::uint8_t { Half, Int8, Int4 };

struct WeightProductParams {
  static constexpr int kBlock = 128;   // the depth is padded to as many, with zeros
  static constexpr int kColumns = 64;  // and the columns

  const void* x = nullptr;   // [rows, depth]
  void* y = nullptr;         // [rows, columns]
  bool is_bfloat16 = false;  // both, else Float32
  bool aligned_x = false;    // four elements can be read at once
  std::int64_t rows = 0;
  int columns = 0;
  int padded_columns = 0;
  int depth = 0;

  WeightForm form = WeightForm::Half;
  // [padded depth / n][padded columns][16 bytes] of n = 8, 16 or 32 neighbours along the depth, the
  // first one lowest. Codes are without sign: 128 or 8 have been added.
  const unsigned char* w = nullptr;
  const float* scales = nullptr;             // [groups][padded columns]; null with halves
  const std::int8_t* zero_points = nullptr;  // the same; null: 0
  int group_shift = 31;                      // k >> group_shift is the group of k
  int segment = kBlock;                      // a power of two >= 16, at most kBlock and a group
  const float* bias = nullptr;               // null: 0
  bool relu = false;
};
QUANTA_CUDA_ENTRY(multiply_weights, WeightProductParams)

}  // namespace quanta::cuda
