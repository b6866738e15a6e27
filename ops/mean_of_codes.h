#pragma once

#include "quanta/runtime/tensor.h"

/// Means of codes as floats. Many threads may call this at once while nobody writes to the argument.
namespace quanta::quantized {

/// The mean of each channel of QUInt8 `x` [N, C, spatial...], quantized per tensor, as Float32
/// [N, C, 1...]: the sum of its codes is exact. Throws ArgumentError for another rank or no pixels,
/// UnsupportedError for another dtype.
Tensor global_mean_to_float(const QTensor& x);

}  // namespace quanta::quantized
