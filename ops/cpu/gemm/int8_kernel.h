#pragma once

// Private: which kernel multiplies codes with an int8 weight, for convolutions, linear layers of
// either kind and recurrent layers. Every threshold was measured; all kernels give the same sums.

#include <cstdint>

namespace quanta::cpu {

enum class Int8Kernel : std::uint8_t {
  FewRows,    ///< gemv_int8, with the weight in panels or as it is
  Codes,      ///< gemm_codes
  Gather,     ///< gemm_codes over rows that are gathered from an image
  Implicit,   ///< gemm_codes over rows that lie in an image
  Floats,     ///< gemm_int8
  Depthwise,  ///< kernels of depthwise convolutions
  OneDnn,     ///< a primitive of oneDNN
  Exact,      ///< conv_exact, in 16 bits
};

/// Whether oneDNN's products of codes with such a weight are exact.
bool has_exact_onednn(bool weight_zero_points);

/// Whether gemm_codes has instructions that make it faster than its alternatives, for rows of
/// `in_features` codes.
bool has_gemm_codes(std::int64_t in_features);

/// A quantized convolution.
struct Int8Convolution {
  bool depthwise, transposed, weight_zero_points;
  bool pointwise;  ///< a product of matrices with a row for each pixel
  bool gathers;    ///< the family has found that gathered rows are faster
  bool implicit;   ///< or rows in the image
  bool codes;      ///< codes are wanted, not sums
  std::int64_t in_channels;
};
Int8Kernel choose_kernel(const Int8Convolution& convolution);

/// A quantized linear layer, to codes or to sums.
struct Int8Linear {
  std::int64_t rows, in_features;
  bool weight_zero_points;
  bool codes;  ///< codes are wanted, not sums
};
Int8Kernel choose_kernel(const Int8Linear& linear);

/// A linear layer whose activation is quantized in the call, to floats. OneDnn and Exact stand for
/// the products of an Int8Linear and a pass over their sums.
struct DynamicLinear {
  std::int64_t rows, in_features;
  bool weight_zero_points;
  bool panels;  ///< a few rows find the weight in panels
};
Int8Kernel choose_kernel(const DynamicLinear& linear);

/// The most rows that a DynamicLinear takes FewRows for.
inline constexpr std::int64_t kMaxFewRows = 16;

/// Whether tiles multiply: a block of 16 rows costs the same when few of them are filled.
bool gemm_codes_uses_tiles(bool weight_tiles, std::int64_t rows);
bool gemm_int8_uses_tiles(std::int64_t rows, std::int64_t in_features);
bool gate_step_uses_tiles(bool weight_tiles, std::int64_t rows);

}  // namespace quanta::cpu
