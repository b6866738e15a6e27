#pragma once

// Private: all products of unsigned codes with int8 weights on a CUDA device: convolutions of any
// rank, stride, dilation, padding and grouping, transposed ones, and linear layers, which are
// convolutions of one pixel. One kernel: an implicit matrix product whose rows are output pixels,
// whose columns are output channels, and whose depth are taps times input channels. Taps beyond the
// image read the zero point, so that `compensation` is the same for every pixel.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// What becomes of a sum.
enum class ProductEnd : std::uint8_t {
  Codes,    ///< math::requantize, and then an addend as quantized::add has it
  Float,    ///< sum * multiplier + bias, an addend in float, a function, quantize
  Sums,     ///< int32
  Dynamic,  ///< float(sum - zero point * weight sum) * (scale * multiplier) + bias, as floats
};

enum class ProductFunction : std::uint8_t { None, ReLU, LeakyReLU };

/// What is added to the result, one code for each.
struct ProductAddend {
  const std::uint8_t* codes = nullptr;  // null: nothing
  float scale = 1.0F;
  std::int32_t zero_point = 0;  // ProductEnd::Float
  // ProductEnd::Codes: fma(code, scale, offset) + fma(own code, own_scale, own_offset), quantized.
  float offset = 0.0F;
  float own_scale = 1.0F;
  float own_offset = 0.0F;
  float inv_scale = 1.0F;
  std::int32_t out_zero_point = 0;
  std::int32_t low = 0;
};

/// ProductEnd::Dynamic: the numbers of the input, which differ from call to call.
struct DynamicInput {
  float scale = 1.0F;
  std::int32_t zero_point = 0;
  const std::int32_t* weight_sums = nullptr;  // of each channel
  const float* addend = nullptr;              // added last, one float for each; null: nothing
};

struct ProductParams {
  static constexpr int kRows = 64;     // of a tile
  static constexpr int kColumns = 64;  // weights are padded to as many
  static constexpr int kDepth = 64;    // of a step; weights are padded to as many

  const std::uint8_t* x = nullptr;    // [batch, in..., channels]
  const std::int8_t* w = nullptr;     // [groups, columns padded, depth padded]
  const std::uint8_t* pad = nullptr;  // 16 bytes of the zero point
  void* y = nullptr;                  // [batch, out..., groups * columns]

  std::int64_t pixels = 0;  // batch * out
  int in[3] = {1, 1, 1};
  int out[3] = {1, 1, 1};
  int kernel[3] = {1, 1, 1};
  int stride[3] = {1, 1, 1};
  int padding[3] = {0, 0, 0};
  int dilation[3] = {1, 1, 1};
  bool transposed = false;
  int groups = 1;
  int channels = 0;        // of an input pixel, all groups
  int group_channels = 0;  // that a group reads
  int columns = 0;         // output channels of a group
  int depth = 0;           // padded
  int parts = 1;           // the weight is a sum of as many, one behind the other along the depth
  int piece = 1;           // bytes that may be copied at once: 16, 8, 4 or 1

  ProductEnd end = ProductEnd::Codes;
  ProductFunction function = ProductFunction::None;
  float negative_slope = 0.0F;
  const std::int32_t* compensation = nullptr;  // [groups * columns]
  const float* multiplier = nullptr;
  const float* bias = nullptr;
  float bias_factor = 1.0F;
  float inv_scale = 1.0F;  // ProductEnd::Float
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  ProductAddend addend;
  DynamicInput dynamic;
  bool has_table = false;
  std::uint8_t table[256] = {};
};
QUANTA_CUDA_ENTRY(multiply_codes, ProductParams)

}  // namespace quanta::cuda
