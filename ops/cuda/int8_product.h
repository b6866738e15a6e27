#pragma once

// Private: all products of unsigned codes with int8 weights on a CUDA device: convolutions of any
// rank, stride, dilation, padding and grouping, transposed ones, and linear layers, which are
// convolutions of one pixel. An implicit matrix product whose rows are output pixels, whose columns
// are output channels, and whose depth are taps times input channels (few_products.h where that would
// be zeros for the most part). Taps beyond the image read the zero point, so that `compensation` is the
// same for every pixel.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// What becomes of a sum.
enum class ProductEnd : std::uint8_t {
  Codes,        ///< math::requantize, and then an addend as quantized::add has it
  Float,        ///< sum * multiplier + bias, an addend in float, a function, quantize
  Sums,         ///< int32
  Dynamic,      ///< float(sum - zero point * weight sum) * (scale * multiplier) + bias, as floats
  Grid,         ///< math::requantize to the input's own scale and zero point, and dequantize
  Activations,  ///< both sides have zero points that only the device knows: ActivationProduct
};

enum class ProductFunction : std::uint8_t {
  None,
  ReLU,
  LeakyReLU,
  Gelu,   ///< ProductEnd::Dynamic: math::gelu_float
  Steps,  ///< ProductEnd::Float: the code is the number of `steps` that the value has reached
};

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
  // Where both lie on the device, if the host does not know them. `pad` is then a table of 16 bytes
  // for each zero point.
  const float* scale_at = nullptr;
  const std::uint8_t* zero_point_at = nullptr;
  const std::int32_t* weight_sums = nullptr;   // of each channel
  const std::int32_t* integer_bias = nullptr;  // added to the sums; null: nothing
  const float* addend = nullptr;               // added last, one float for each; null: nothing
  bool bias_per_channel = false;               // ProductEnd::Grid: as fbgemm has it
};

/// The zero point of bytes on one side: a number, or bytes on the device.
struct ZeroOfBytes {
  std::int32_t number = 0;
  const std::uint8_t* bytes = nullptr;  // null: the number
  bool is_signed = false;               // the bytes
  std::int32_t added = 0;               // to the bytes
  int step = 0;                         // bytes from one row or column to the next
};

/// ProductEnd::Activations. With R and C the sums of a row of x and of a column of w:
///   full = sum - zw * R - zx * (C - depth * zw), in integers that wrap
struct ActivationProduct {
  enum class End : std::uint8_t {
    Sums,        ///< full, int32
    Floats,      ///< float(full) * scale
    Codes,       ///< math::quantize of that, with inv_scale; int8 codes where low is below 0
    Requantize,  ///< math::requantize with the multiplier `scale` and no bias, 0..255
  };
  End end = End::Sums;
  ZeroOfBytes x, w;
  const std::int32_t* row_sums = nullptr;     // of each pixel and group
  const std::int32_t* column_sums = nullptr;  // of each matrix, group and column
  std::int32_t depth = 0;                     // products of a sum
  float scale = 1.0F;
  std::int32_t high = 255;  // ProductEnd's low and zero_point hold too
};

struct ProductParams {
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
  int matrices = 1;        // as many products, one behind the other in x, y and, or not, in w
  std::int64_t matrix_x = 0;  // elements from one to the next
  std::int64_t matrix_w = 0;
  std::int64_t matrix_y = 0;
  // Bytes that may be copied at once: 16, 8, 4 or 1; or 3, pixels of three channels in one group, for
  // which group_channels is 4 and every fourth weight 0.
  int piece = 1;

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
  const float* steps = nullptr;  // 255 that rise, and NaN behind them; see detail/code_steps.h
  ProductAddend addend;
  DynamicInput dynamic;
  ActivationProduct activations;
  bool has_table = false;
  std::uint8_t table[256] = {};
};
QUANTA_CUDA_ENTRY(multiply_codes, ProductParams)

}  // namespace quanta::cuda
