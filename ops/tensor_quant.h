#pragma once

#include <cstdint>
#include <optional>

#include "quanta/runtime/tensor.h"

/// Quantization described by amax, the largest magnitude that is represented, as
/// pytorch-quantization and ModelOpt have it. There are no zero points:
///
///   scale = max_code / amax                           0 where amax <= 2^-24
///   code  = clamp(round_half_even(x * scale), min_code, max_code)
///   value = code / scale                              0 where amax <= 2^-24
///
/// In all functions `x` is Float32, Float64, Float16 or BFloat16 of any shape and `amax` a floating
/// tensor whose shape broadcasts to that of `x`: one value, one for each channel, or one for each
/// block of a tensor that was split into blocks. Results have the sizes and the dtype of `x`;
/// Float64 is calculated in float32. Gradients go straight through to `x` where |x| <= amax and
/// are 0 elsewhere; GradientRule::PassThrough lets all of them pass. Where they are clipped, an amax
/// that asks for a gradient gets the sum of what the elements beyond it lose, with its sign turned
/// for those below -amax: amax can be learned. An amax that asks for one elsewhere (tensor_quant,
/// PassThrough) is refused with UnsupportedError. Anything else throws ArgumentError. Many threads
/// may call these functions at once while nobody writes to the arguments.
namespace quanta {

/// The integer codes. With b bits they are -(2^(b-1)-1)..2^(b-1)-1, one more below without
/// narrow_range, and unsigned 0..2^b-1. num_bits is 2..32, unsigned 1..32.
struct TensorQuantOptions {
  std::int64_t num_bits = 8;
  bool is_unsigned = false;
  bool narrow_range = true;
};

enum class GradientRule : std::uint8_t {
  Clip,         ///< 0 for elements beyond amax
  PassThrough,  ///< as if nothing had happened
};

/// Codes as floats, and what to divide them by.
struct TensorQuantResult {
  Tensor values;
  Tensor scale;  ///< has the sizes of amax; 1 where amax counts as 0
};
/// Same as pytorch_quantization.tensor_quant. Float16 is calculated in float32 and the codes and
/// the scale are returned as Float16; a scale beyond its range is refused. BFloat16 rounds every
/// step to BFloat16. Unsigned codes of negative elements, and negative amax, are refused.
///
/// `output_dtype` is that of the codes: Int32 (at most 25 bits, unsigned 24; NaN gives 0; no
/// gradients), Float32, or that of x.
TensorQuantResult tensor_quant(const Tensor& x, const Tensor& amax,
                               const TensorQuantOptions& options = {},
                               std::optional<DType> output_dtype = std::nullopt);

/// values / scale of tensor_quant, divided in the dtype of x. Same as
/// pytorch_quantization.fake_tensor_quant and ModelOpt's legacy_fake_tensor_quant.
Tensor legacy_fake_tensor_quant(const Tensor& x, const Tensor& amax,
                                const TensorQuantOptions& options = {},
                                GradientRule gradient = GradientRule::Clip);

struct FakeTensorQuantOptions {
  TensorQuantOptions codes{};
  GradientRule gradient = GradientRule::Clip;
  /// Subtracted before and added after, if defined; broadcasts to x.
  Tensor bias{};
};
/// The same in float32 throughout, with one rounding to the dtype of x at the end. Same as
/// ModelOpt's fake_tensor_quant, with the gradient of its document.
Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax,
                         const FakeTensorQuantOptions& options = {});

/// Quantizes and dequantizes on an affine grid of 2^num_bits values from min_range to max_range
/// (one element each, min < max); 0 is on the grid.
///
///   step = (max - min) / (2^b - 1);   z = round_half_even(min / step) - low
///   y    = (clamp(round_half_even(x / step) - z, low, high) + z) * step
///
/// The gradient passes where min <= x <= max. num_bits is 1..24. Same as
/// pytorch_quantization.fake_affine_tensor_quant.
Tensor fake_affine_tensor_quant(const Tensor& x, const Tensor& min_range, const Tensor& max_range,
                                std::int64_t num_bits = 8);
Tensor fake_affine_tensor_quant(const Tensor& x, double min_range, double max_range,
                                std::int64_t num_bits = 8);

/// clamp(round_half_even(x), min_code, max_code) as floats; the gradient passes where x itself lies
/// within the codes.
Tensor int_cast_ste(const Tensor& x, const TensorQuantOptions& options = {});

/// max(min(x, high), low) with bounds that broadcast to x. The gradient of x passes where
/// low < x < high; `low` and `high` get the sum of it over the elements at or beyond them. Same as
/// pytorch_quantization.nn.functional.clip.
Tensor clip(const Tensor& x, const Tensor& low, const Tensor& high);

struct ScaledE4M3Options {
  GradientRule gradient = GradientRule::Clip;
  Tensor bias{};  ///< as in FakeTensorQuantOptions
  /// Anything but 4 and 3 throws UnsupportedError.
  std::int64_t exponent_bits = 4;
  std::int64_t mantissa_bits = 3;
};
/// Rounds to float8 E4M3FN as multiples of amax / 448:
///
///   s = 1 / amax * 448,  y = e4m3(clamp(x * s, -448, 448)) * (1 / s)
///
/// An amax <= 2^-24 counts as 1. Without amax (undefined) y is e4m3(x), saturating, and gradients
/// always pass.
Tensor scaled_e4m3(const Tensor& x, const Tensor& amax = {}, const ScaledE4M3Options& options = {});

/// Rounds to E2M1 (0, .5, 1, 1.5, 2, 3, 4, 6; ties to the even mantissa); the gradient passes where
/// |x| <= 6.
Tensor fp4_cast_ste(const Tensor& x);

struct Fp4ScaleOptions {
  /// Whether the scales themselves are rounded to E4M3, as multiples of the tensor's own factor.
  bool quantize_block_scales = true;
  /// The largest E4M3 scale that is used: 448, or 256 in "four over six" mode.
  double fp8_max = 448.0;
};
/// The scales of fp4 blocks: amax / 6, rounded to a multiple of
/// (global_amax * 448 / fp8_max / 6) / 448 in E4M3. `global_amax` has one element; undefined: the
/// largest amax.
Tensor compute_fp4_scales(const Tensor& amax, const Tensor& global_amax = {},
                          const Fp4ScaleOptions& options = {});

struct StaticFp4Options {
  Fp4ScaleOptions scale{};
  Tensor global_amax{};
  GradientRule gradient = GradientRule::Clip;
};
/// Rounds to E2M1 as multiples of compute_fp4_scales(amax): NVFP4 with known block maxima. `amax`
/// broadcasts to x, so x comes split into blocks ([..., blocks, 16] with amax [..., blocks, 1]). A
/// scale of 0 gives zeros, one that is not finite counts as 1.
Tensor static_fp4(const Tensor& x, const Tensor& amax, const StaticFp4Options& options = {});

}  // namespace quanta

/// pytorch-quantization's names (its module tensor_quant) with its behaviour. What is said above
/// about arguments, errors and threads holds for them.
namespace quanta::pytorch_quantization {

using quanta::fake_affine_tensor_quant;
using quanta::scaled_e4m3;
using quanta::tensor_quant;

/// quanta::legacy_fake_tensor_quant: each step is rounded to the dtype of x.
inline Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax,
                                const TensorQuantOptions& options = {},
                                GradientRule gradient = GradientRule::Clip) {
  return legacy_fake_tensor_quant(x, amax, options, gradient);
}

}  // namespace quanta::pytorch_quantization
