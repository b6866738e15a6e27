#pragma once

#include "quanta/ops/conv.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/runtime/tensor.h"

/// Convolutions of float activations with int8 weights.
///
/// Many threads may call these at once while nobody writes to the arguments.
namespace quanta::quantized {

/// A convolution whose activation is quantized anew in each call: Float32 x [N, C, spatial...] or
/// [C, spatial...] to Float32.
///
///   scale, zero point = choose_qparams(min(x), max(x))      over the whole of x, QUInt8
///   y = dequantize(conv(quantize(x, scale, zero point), packed, scale, zero point))
///
/// The result gets the parameters of x: it lies on a grid as coarse and is cut off beyond the range
/// of x, as torch's dynamic convolutions do. Throws ArgumentError for an x that is not Float32, for
/// NaN and infinities in it (on a CUDA device these make the whole result NaN), and as conv does.
Tensor conv_dynamic(const Tensor& x, const ConvPackedParams& packed,
                    ReduceRange reduce_range = ReduceRange::No);

/// The convolution of codes that were chosen elsewhere, as linear_of_codes.
Tensor conv_of_codes(const Tensor& codes, const Tensor& scale, const Tensor& zero_point,
                     const ConvPackedParams& packed);

}  // namespace quanta::quantized
