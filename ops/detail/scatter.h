#pragma once

// Private: elements that are taken out of a tensor: what their gradients do.

#include <cstdint>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// 0, 1, ... in these sizes: what is done to it shows where each element of a result came from.
Tensor positions_of(const Dims& sizes);
/// The same for results whose element [i][j]... is x[index[i][j]][j]... along `dim` of sizes.
Tensor positions_along(const Tensor& index, std::int64_t dim, const Dims& sizes);

/// Zeros of these sizes, to which every element of `gradient` is added where `positions` says.
Tensor scatter_add(const Tensor& gradient, const Tensor& positions, const Dims& sizes);

/// Zeros of these sizes, to whose slices along `dim` those of `gradient` are added, slice i to
/// slice index[i] (contiguous Int64).
Tensor add_slices(const Tensor& gradient, const Tensor& index, const Dims& sizes, std::int64_t dim);

}  // namespace quanta::detail
