#pragma once

#include "quanta/runtime/tensor.h"

/// Comparisons, and choosing elements by them. Same as torch.eq, ne, lt, le, gt, ge and where.
///
/// A comparison gives a Bool tensor of the broadcast sizes. A quantized tensor, per tensor or per
/// channel, stands for its dequantized values, so that both sides may have any dtype and any
/// parameters; sub-byte dtypes are compared as well. Plain sides of different dtypes are compared
/// as torch promotes them: as Int64 for integers, as Float32 or Float64 where one side is floating.
/// Strides may be any.
///
/// All throw ArgumentError for sizes that do not broadcast. Many threads may call them at once
/// while nobody writes to the arguments.
namespace quanta {

Tensor eq(const Tensor& lhs, const Tensor& rhs);
Tensor ne(const Tensor& lhs, const Tensor& rhs);
Tensor lt(const Tensor& lhs, const Tensor& rhs);
Tensor le(const Tensor& lhs, const Tensor& rhs);
Tensor gt(const Tensor& lhs, const Tensor& rhs);
Tensor ge(const Tensor& lhs, const Tensor& rhs);

// A tensor and a number, which is rounded to the tensor's floating dtype (Float32 for quantized
// ones) as in torch; integer tensors compare as integers when the number is whole.
Tensor eq(const Tensor& x, double other);
Tensor ne(const Tensor& x, double other);
Tensor lt(const Tensor& x, double other);
Tensor le(const Tensor& x, double other);
Tensor gt(const Tensor& x, double other);
Tensor ge(const Tensor& x, double other);

/// `x` where `condition` (Bool) holds, else `y`; all three are broadcast. `x` and `y` have one
/// dtype; quantized ones are per tensor with equal parameters, which the result keeps (torch has no
/// quantized where). Throws ArgumentError for unequal dtypes or parameters. Same as torch.where.
Tensor where(const Tensor& condition, const Tensor& x, const Tensor& y);

}  // namespace quanta
