#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Padding. Many threads may call pad at once while nobody writes to the tensor.
namespace quanta {

enum class PadMode : std::uint8_t { Constant, Reflect, Replicate, Circular };

/// Pads the last dimensions: `pad` is (left, right) of the last one, then of the one before it, and
/// so on; negative numbers cut off. The result has the input's memory order and parameters.
///
/// Constant takes any number of dimensions; of quantized tensors it writes the code that `value`
/// quantizes to. Reflect (pad < size), Replicate and Circular (pad <= size) take the last one to
/// three dimensions of a tensor with one or two more. Any whole-byte dtype, quantized per tensor.
/// Same as torch.nn.functional.pad. Throws ArgumentError for widths that do not fit,
/// UnsupportedError for other dtypes.
Tensor pad(const Tensor& x, const Dims& pad, PadMode mode = PadMode::Constant, double value = 0.0);

}  // namespace quanta
