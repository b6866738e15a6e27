#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/tensor.h"

/// Quantization in blocks that find their own scales: the MX formats and NVFP4.
///
/// Many threads may call these functions at once while nobody writes to the arguments.
namespace quanta {

/// ModelOpt's `num_bits`: the bits of an integer, or the exponent and mantissa bits of a float.
struct NumBits {
  static constexpr NumBits integer(std::int64_t bits) { return {bits, 0, 0, false}; }
  static constexpr NumBits floating(std::int64_t exponent, std::int64_t mantissa) {
    return {0, exponent, mantissa, true};
  }

  std::int64_t bits = 8;
  std::int64_t exponent = 0;
  std::int64_t mantissa = 0;
  bool is_float = false;

  bool operator==(const NumBits&) const = default;
};
/// "8" or "(4, 3)".
std::string to_string(const NumBits& bits);

struct DynamicBlockOptions {
  /// The elements: integers of 2..8 bits without the lowest code, (4,3), (5,2), (3,2), (2,3), (2,1),
  /// (1,2), (0,3) or (3,0).
  NumBits num_bits = NumBits::floating(2, 1);
  /// (8,0): a power of two, as in the MX formats. (4,3): a float8, times a factor that follows from
  /// amax (NVFP4) when there is one. None: a float32 as it is.
  std::optional<NumBits> scale_bits = NumBits::floating(4, 3);
  std::int64_t block_size = 16;
  /// Clip acts only when there is an amax.
  GradientRule gradient = GradientRule::PassThrough;
};

struct BlockQuantized {
  Tensor values;
  Tensor scales;  ///< Float32, one for each block: what its elements were multiplied with at last
};

/// Quantizes and dequantizes in blocks along the last axis, each with a scale that follows from its
/// largest magnitude a (the last block of a row may be short):
///
///   y = sign(x) * round(|x| * scale) / scale      round: to num_bits, ties to even, saturating
///   scale_bits (8,0):           1 / scale = 2^ceil(log2(a / max)), within 2^-127..2^127
///   scale_bits (4,3) and amax:  1 / scale = e4m3(a / max * t) / t,  t = 448 * max / amax
///   scale_bits (4,3) without:   1 / scale = e4m3(a / max)
///   no scale_bits:              1 / scale = a / max
///
/// where max is the largest element of the format. Blocks of zeros, or with infinity or NaN, have
/// scale 1; a scale that rounds to 0 makes the block 0. `x` is Float32, Float64, Float16 or
/// BFloat16 with at least one axis; `amax` is undefined or its largest element counts (with other
/// scale_bits than (4,3) for clipped gradients only).
///   MXFP8, MXFP6, MXFP4, MXINT8: (4,3), (3,2) or (2,3), (2,1), 8 with (8,0) and blocks of 32.
///   NVFP4: (2,1) with (4,3) and blocks of 16.
/// Throws ArgumentError for other dtypes and for sizes that do not fit, UnsupportedError for other
/// formats.
Tensor dynamic_block_quant(const Tensor& x, const Tensor& amax = {},
                           const DynamicBlockOptions& options = {});
/// The same with the scales; nothing is recorded.
BlockQuantized dynamic_block_quant_with_scales(const Tensor& x, const Tensor& amax = {},
                                               const DynamicBlockOptions& options = {});

}  // namespace quanta
