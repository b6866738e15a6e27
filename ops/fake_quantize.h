#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Fake quantization: tensors stay floating, with the values that quantizing would give.
///
/// All throw ArgumentError for other dtypes and for ranges, scales and zero points that do not fit.
/// Many threads may call them at once while nobody writes to the arguments.
namespace quanta {

/// Quantize and dequantize in one, with a gradient that passes straight through where the code lies
/// in the range:
///
///   code = round_half_even(x * (1 / scale)) + zero_point
///   y    = (clamp(code, quant_min, quant_max) - zero_point) * scale
///   dx   = dy where quant_min <= code <= quant_max, else 0
///
/// `x` is Float32, Float64 (the last product rounded to float32, as in torch), Float16 or BFloat16
/// (calculated in float32) of any shape; y keeps its dtype, shape and memory order. Infinities
/// saturate, NaN becomes the lowest code; their gradient is 0. `scale` (rounded to float32) is
/// finite and > 0, zero_point lies within quant_min..quant_max. Same as
/// torch.fake_quantize_per_tensor_affine.
Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, std::int64_t zero_point,
                                       std::int64_t quant_min, std::int64_t quant_max);
/// The same with tensors of one element (scale floating, zero_point integer or floating), whose
/// values are not checked, as in torch: a NaN scale gives NaN, so that a diverged training shows.
Tensor fake_quantize_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                       const Tensor& zero_point, std::int64_t quant_min,
                                       std::int64_t quant_max);
/// The same with a switch: a `fake_quant_enabled` (one element) of 0 lets x and its gradient
/// through as they are.
Tensor fake_quantize_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                       const Tensor& zero_point, const Tensor& fake_quant_enabled,
                                       std::int64_t quant_min, std::int64_t quant_max);

/// The same with a scale and zero point for each index along `axis` (negative counts from the end).
/// `scale` is a floating [C], `zero_point` an integer [C] within the range; a floating one is added
/// before rounding: code = round_half_even(x * (1 / scale) + zero_point). Same as
/// torch.fake_quantize_per_channel_affine, but that infinities saturate.
Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale,
                                        const Tensor& zero_point, std::int64_t axis,
                                        std::int64_t quant_min, std::int64_t quant_max);

/// Fake quantization whose scale and zero point are trained too (LSQ). `scale` and `zero_point` are
/// floating [1]; the zero point is used as clamp(round_half_even(zero_point), quant_min,
/// quant_max). With n elements and upstream gradient dy:
///
///   region              dx   dscale                      dzero_point
///   code in the range   dy   dy * (y - x) / scale        0
///   below               0    dy * (quant_min - zp)       -dy * scale
///   above               0    dy * (quant_max - zp)       -dy * scale
///
/// summed over the elements and multiplied by grad_factor (LSQ: 1 / sqrt(n * quant_max)). Regions
/// and zp of the gradients follow from trunc(clamp(zero_point + 0.5, quant_min, quant_max)),
/// torch's rule, which differs from the forward's for negative zero points. Same as
/// torch._fake_quantize_learnable_per_tensor_affine.
Tensor fake_quantize_learnable_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                                 const Tensor& zero_point, std::int64_t quant_min,
                                                 std::int64_t quant_max, double grad_factor = 1.0);
/// The same for each index along `axis`: `scale` and `zero_point` are floating [C]. Forward and
/// backward use the same zero point, as in torch.
Tensor fake_quantize_learnable_per_channel_affine(const Tensor& x, const Tensor& scale,
                                                  const Tensor& zero_point, std::int64_t axis,
                                                  std::int64_t quant_min, std::int64_t quant_max,
                                                  double grad_factor = 1.0);

}  // namespace quanta
