#pragma once

// Private: quantization by division, and codes that become others, on a CUDA device. The arithmetic
// is that of runtime/detail/quotient_math.h.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// Where an element's scale lies: x is [outer, length, inner], row-major, and the scales are
/// [outer, groups, inner] with blocks, else [length] or one.
struct QuotientLayout {
  std::int64_t length = 1;
  std::int64_t inner = 1;
  std::int64_t block = 0;  // 0: one scale for each index along the axis
  std::int64_t groups = 1;
  bool single = true;
};

struct QuotientParams {
  std::int64_t count = 0;
  const float* floats = nullptr;  // the codes of these, or what the codes stand for
  float* results = nullptr;
  void* codes = nullptr;
  DType dtype{};  // plain or quantized, 8 to 32 bits
  std::int32_t low = 0;
  std::int32_t high = 0;
  QuotientLayout layout{};
  const float* scales = nullptr;      // on the device; null: the numbers
  const void* zero_points = nullptr;  // of the codes' dtype; null: 0, or the number
  float scale = 1.0F;
  std::int32_t zero_point = 0;
};
QUANTA_CUDA_ENTRY(quantize_quotients, QuotientParams)
QUANTA_CUDA_ENTRY(dequantize_quotients, QuotientParams)

/// Scale and zero point of dynamic_quantize_linear, from the range that find_ranges left.
struct ChooseQuotientParams {
  const float* min_max = nullptr;  // two floats; null: 0 and 0
  float* scale = nullptr;
  std::uint8_t* zero_point = nullptr;
};
QUANTA_CUDA_ENTRY(choose_quotient, ChooseQuotientParams)

/// to = table[from] for each code, in memory's order.
struct MapToFloatParams {
  std::int64_t count = 0;
  const std::uint8_t* from = nullptr;
  float* to = nullptr;
  float table[256] = {};
};
QUANTA_CUDA_ENTRY(map_codes_to_floats, MapToFloatParams)

/// to = from ^ mask for each byte, in memory's order.
struct TurnBytesParams {
  std::int64_t count = 0;
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  std::uint8_t mask = 0;
};
QUANTA_CUDA_ENTRY(turn_bytes, TurnBytesParams)

/// Codes of 2 or 4 bits to bytes, lowest bits first.
struct UnpackBitsParams {
  std::int64_t count = 0;  // of the packed bytes
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  int bits = 4;
};
QUANTA_CUDA_ENTRY(unpack_bytes, UnpackBitsParams)

}  // namespace quanta::cuda
