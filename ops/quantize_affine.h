#pragma once

#include <cstdint>
#include <string_view>

#include "quanta/runtime/affine_math.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

/// Affine quantization as AIMET writes it: values stay in the floating dtype of x, parameters are
/// tensors that are broadcast or belong to blocks, and everything has a gradient. The offset is the
/// negated zero point: real value = (q + offset) * scale.
///
/// Many threads may call these functions at once while nobody writes to the arguments.
namespace quanta {

/// Which arithmetic quantize_dequantize_affine uses; they differ in the last place near ties.
enum class AffineKernel : std::uint8_t {
  /// InverseMultiply where that is possible: no gradient is asked for scale or offset, there are no
  /// blocks and no shift, one scale or one per channel, and integer offsets that lie in the range.
  /// Else Divide.
  Automatic,
  Divide,
  InverseMultiply,  ///< torch's fake quantization: x * (1 / scale). Throws where it cannot be.
};

struct AffineOptions {
  std::int64_t qmin = -128;
  std::int64_t qmax = 127;
  /// One entry for each dimension of the scale: how many neighbours along that dimension (of the
  /// last ones of x) share a scale; -1: as many as the scale's size asks for. Empty: no blocks, the
  /// scale is broadcast.
  Dims block_size{};
  /// 0 or 0.5; quantize_dequantize_affine only.
  double zero_point_shift = 0.0;
  AffineRounding rounding = AffineRounding::HalfEven;
  AffineKernel kernel = AffineKernel::Automatic;
  /// Elements of quantize_dequantize_affine whose value lies within spike_epsilon / 2 of a tie get
  /// their gradient multiplied ("pivot gradient spiking"); epsilon in (0, 1], multiplier 1: off.
  double spike_epsilon = 0.0;
  double spike_multiplier = 1.0;
};

/// clamp(round_half_even(x / scale) - offset, qmin, qmax) in the dtype of x (Float32, Float64,
/// Float16, BFloat16). `scale` and `offset` are floating, of the same sizes and such that they can
/// be expanded to those of x, or follow block_size. With r the code before the clamp and
/// m = qmin <= r <= qmax, an upstream gradient g gives
///
///   dx = m ? g / scale : 0     dscale = -dx * (x / scale)     doffset = m ? -g : 0
///
/// the last two summed over what shares a parameter. NaN stays NaN.
///
/// Float16 and BFloat16 are calculated in their own precision where qmin, qmin + 1, qmax - 1 and
/// qmax are exact in it and its epsilon is at most 0.25 / (qmax - qmin), else in float32; Float32
/// likewise goes to float64. Throws ArgumentError: sizes that do not broadcast, blocks that do not
/// divide, qmin > qmax, a dtype of x that cannot hold the codes.
Tensor quantize_affine(const Tensor& x, const Tensor& scale, const Tensor& offset,
                       const AffineOptions& options = {});

/// (q + offset) * scale, for codes in a floating dtype. dq = g * scale, dscale = g * (q + offset),
/// doffset = g * scale. Of the options only block_size counts.
Tensor dequantize_affine(const Tensor& q, const Tensor& scale, const Tensor& offset,
                         const AffineOptions& options = {});

/// Both in one, with z = zero_point_shift:
///
///   t = x / scale - z
///   y = (clamp(round(t) - offset, qmin, qmax) + (offset + z)) * scale
///
/// Gradients, with m as above: dx = m ? g : 0, doffset = m ? 0 : g * scale,
/// dscale = g * (m ? round(t) - t : clamp(round(t), offset + qmin, offset + qmax)).
/// See AffineKernel for the other arithmetic.
Tensor quantize_dequantize_affine(const Tensor& x, const Tensor& scale, const Tensor& offset,
                                  const AffineOptions& options = {});

}  // namespace quanta
