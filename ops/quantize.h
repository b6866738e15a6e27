#pragma once

#include <span>
#include <vector>

#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/tensor.h"

/// Quantizing and dequantizing tensors, and choosing scales for it.
///
/// All throw ArgumentError for parameters that the dtype cannot have and for tensors of other
/// dtypes and sizes. Many threads may call them at once while nobody writes to the arguments.
namespace quanta {

/// Quantizes a float tensor with one scale and one zero point for all of it.
///
///   q = clamp(round_half_even(x * (1 / scale)) + zero_point, qmin(dtype), qmax(dtype))
///
/// `x` is Float32 of any shape; the result keeps its shape and memory order. `scale` is finite and
/// > 0, and `zero_point` lies within the range of `dtype` (QUInt8, QInt8, QInt32, QUInt4x2,
/// QUInt2x4). Same as torch.quantize_per_tensor. Throws ArgumentError for anything else.
QTensor quantize_per_tensor(const Tensor& x, double scale, std::int64_t zero_point, DType dtype);
/// The same with one-element tensors for scale (floating) and zero point (integer).
QTensor quantize_per_tensor(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                            DType dtype);
/// The same for a list of tensors with one scale and zero point each.
std::vector<QTensor> quantize_per_tensor(std::span<const Tensor> tensors, const Tensor& scales,
                                         const Tensor& zero_points, DType dtype);

/// Quantizes with a scale and zero point for each index along `axis`. `scales` is a 1-d floating
/// tensor of length x.size(axis), `zero_points` a 1-d integer tensor of the same length, or a
/// floating one for the float-qparams scheme (q = clamp(round(x / scale + zero_point))).
/// Same as torch.quantize_per_channel, in any memory order.
QTensor quantize_per_channel(const Tensor& x, const Tensor& scales, const Tensor& zero_points,
                             std::int64_t axis, DType dtype);

/// Chooses scale and zero point from the tensor's own minimum and maximum, as dynamic
/// quantization does, and quantizes to QInt8 or QUInt8 (Float16: casts).
/// Same as torch.quantize_per_tensor_dynamic.
Tensor quantize_per_tensor_dynamic(const Tensor& x, DType dtype, bool reduce_range);

/// What fbgemm's ChooseQuantizationParams answers for values in [min, max] and codes in `range`
/// (`reduce_range` halves the range). Throws ArgumentError when min > max or one is not finite.
math::QParams choose_qparams(float min, float max, IntRange range, bool reduce_range);
/// The same for the minimum and maximum of a tensor and QUInt8. Same as
/// torch._choose_qparams_per_tensor.
math::QParams choose_qparams_per_tensor(const Tensor& x, bool reduce_range = false);

/// The Float32 values of a quantized tensor, (q - zero_point) * scale, in its memory order. A
/// floating tensor is returned as Float32. Same as torch.dequantize.
Tensor dequantize(const Tensor& x);

/// The stored codes as a new plain integer tensor (UInt8, Int8 or Int32, same memory order;
/// sub-byte kinds: flat packed bytes). Same as Tensor.int_repr().
Tensor int_repr(const QTensor& x);

}  // namespace quanta
