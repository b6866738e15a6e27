#pragma once

// Private: bytes that a call is given as the weights of multiply_codes, on a CUDA device.

#include <cstdint>

#include "quanta/ops/cuda/int8_product.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// Each group is a matrix: element (group, column, channel, tap) is at the sum of the indices times
/// their strides, in bytes.
struct PackCodesParams {
  const std::uint8_t* from = nullptr;
  std::int64_t group_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t channel_stride = 0;
  std::int64_t tap_stride = 0;
  std::int64_t groups = 1;
  int columns = 0;
  int channels = 0;
  int taps = 1;
  std::uint8_t mask = 0;  // 0x80 turns bytes without sign into signed ones
  int padded_columns = 0;
  int depth = 0;                 // padded
  std::int8_t* w = nullptr;      // [groups, padded columns, depth], the taps outside, zeros behind
  std::int32_t* sums = nullptr;  // of each group and column, added to what is there
  std::uint8_t* pad = nullptr;   // 16 bytes of the zero point of x; null: none is wanted
  ZeroOfBytes pad_zero{};
};
QUANTA_CUDA_ENTRY(pack_codes, PackCodesParams)

}  // namespace quanta::cuda
