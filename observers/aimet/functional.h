#pragma once

#include <cstdint>
#include <optional>

#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

/// AIMET's functions of affine quantization, quantization.affine.functional. The integer grid is
/// given in one of three forms:
///
///   quantize(x, scale, offset, 8)                                 // 0..255
///   quantize(x, scale, offset, {.bitwidth = 8, .is_signed = true})
///   quantize(x, scale, offset, {.num_steps = 254, .is_signed = true})
///   quantize(x, scale, offset, {.qmin = -127, .qmax = 127})
///
/// See ops/quantize_affine.h for the formulas, gradients, dtypes and what sizes `scale` and `offset`
/// can have; the offset is the negated zero point. Many threads may call these functions at once
/// while nobody writes to the arguments.
namespace quanta::aimet::functional {

struct Codes {
  /// One of bitwidth, num_steps, or qmin and qmax.
  std::optional<std::int64_t> bitwidth{};
  /// -ceil(n / 2)..floor(n / 2) if signed, else 0..n.
  std::optional<std::int64_t> num_steps{};
  std::optional<std::int64_t> qmin{};
  std::optional<std::int64_t> qmax{};
  /// False where it is not given. Not beside qmin and qmax.
  std::optional<bool> is_signed{};
  Dims block_size{};              ///< see AffineOptions
  double zero_point_shift = 0.0;  ///< quantize_dequantize only: 0 or 0.5
};

/// The codes, in the dtype of x. Throws ArgumentError: not exactly one form of the grid, qmin >
/// qmax, a sign beside qmin and qmax, a shift, and as quantize_affine.
Tensor quantize(const Tensor& x, const Tensor& scale, const Tensor& offset, const Codes& codes);
Tensor quantize(const Tensor& x, const Tensor& scale, const Tensor& offset, std::int64_t bitwidth,
                bool is_signed = false, const Dims& block_size = {});

/// The values that the codes stand for. Throws as quantize, but for the shift.
Tensor quantize_dequantize(const Tensor& x, const Tensor& scale, const Tensor& offset,
                           const Codes& codes);
Tensor quantize_dequantize(const Tensor& x, const Tensor& scale, const Tensor& offset,
                           std::int64_t bitwidth, bool is_signed = false,
                           const Dims& block_size = {});

/// (q + offset) * scale. Throws as dequantize_affine.
Tensor dequantize(const Tensor& q, const Tensor& scale, const Tensor& offset,
                  const Dims& block_size = {});

}  // namespace quanta::aimet::functional
