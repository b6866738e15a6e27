#pragma once

// Private: ranges of tensors in any memory order.

#include <cstdint>

#include "quanta/observers/uniform_observer.h"

namespace quanta::detail {

/// `x` as Float32 without gaps in memory, in whatever order of the dimensions.
Tensor dense_floats(const Tensor& x);

/// Range of all elements of a dense, not empty Float32 tensor; NaN when it holds one.
ValueRange tensor_range(const Tensor& dense);

/// Range of each index along `axis` (>= 0) of a dense, not empty Float32 tensor.
ValueRange channel_range(const Tensor& dense, std::int64_t axis);

/// Takes `batch` into `total`. NaN wins, as in torch.
void widen(ValueRange& total, const ValueRange& batch);

}  // namespace quanta::detail
