#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Quantized tensors from codes and parameters, and tensors like another one.
///
/// All throw ArgumentError for a scale that is not finite or not > 0, for a zero point outside the
/// dtype's range and for a wrong axis. Results lie where the first tensor that is given does, and on
/// the CPU where none is; scales and zero points of channels are read on the host. Many threads may
/// call them at once while nobody writes to the arguments.
namespace quanta {

/// A copy of integer codes (UInt8 -> QUInt8, Int8 -> QInt8, Int32 -> QInt32) with one scale and
/// zero point. Same as torch._make_per_tensor_quantized_tensor; QTensor::from_int_repr does not
/// copy.
QTensor make_per_tensor_quantized_tensor(const Tensor& codes, double scale,
                                         std::int64_t zero_point);
/// The same with a scale and a zero point for every index along `axis`: `scales` is a floating
/// tensor of codes.size(axis) elements, `zero_points` an integer one, or a floating one for the
/// float-qparams scheme. Same as torch._make_per_channel_quantized_tensor.
QTensor make_per_channel_quantized_tensor(const Tensor& codes, const Tensor& scales,
                                          const Tensor& zero_points, std::int64_t axis);

/// Undefined codes with the dtype and parameters of `qtensor`; per channel: as many channels along
/// its axis. Same as torch.empty_quantized.
QTensor empty_quantized(const Dims& sizes, const QTensor& qtensor,
                        MemoryFormat format = MemoryFormat::Contiguous);
/// Undefined codes. Same as torch._empty_affine_quantized.
QTensor empty_affine_quantized(const Dims& sizes, double scale, std::int64_t zero_point,
                               DType dtype, MemoryFormat format = MemoryFormat::Contiguous);
/// Undefined codes. Same as torch._empty_per_channel_affine_quantized.
QTensor empty_per_channel_affine_quantized(const Dims& sizes, const Tensor& scales,
                                           const Tensor& zero_points, std::int64_t axis,
                                           DType dtype,
                                           MemoryFormat format = MemoryFormat::Contiguous);

/// Undefined elements with the sizes, memory order, dtype and parameters of `x`. Same as
/// torch.empty_like.
Tensor empty_like(const Tensor& x);
/// A tensor like `x` filled with 1 (quantized: its code). Same as torch.ones_like.
Tensor ones_like(const Tensor& x);
/// The same with 0. Same as torch.zeros_like.
Tensor zeros_like(const Tensor& x);
/// The same with `value`. Same as torch.full_like.
Tensor full_like(const Tensor& x, double value);

/// `steps` numbers at equal distances from `start` to `end`, both included, calculated in double:
/// [steps]. Same as torch.linspace. Throws ArgumentError for steps < 0 and a dtype that is not
/// floating point.
Tensor linspace(double start, double end, std::int64_t steps, DType dtype = DType::Float32);

}  // namespace quanta
