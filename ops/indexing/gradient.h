#pragma once

// Private: elements that are taken out of a tensor, on the tape.

#include <cstdint>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// 0, 1, ... in these sizes: what is done to it shows where each element of a result came from.
Tensor positions_of(const Dims& sizes);
/// The same for results whose element [i][j]... is x[index[i][j]][j]... along `dim` of sizes.
Tensor positions_along(const Tensor& index, std::int64_t dim, const Dims& sizes);

/// Zeros of these sizes, to which every element of `gradient` is added where `positions` says.
Tensor scatter_add(const Tensor& gradient, const Tensor& positions, const Dims& sizes);

/// Zeros of these sizes, to whose slices along `dim` those of `gradient` are added, slice i to
/// slice index[i] (contiguous Int64).
Tensor add_slices(const Tensor& gradient, const Tensor& index, const Dims& sizes, std::int64_t dim);

/// Records `y`, whose element i is element positions[i] of x.
Tensor record_taken(std::string_view op, const Tensor& x, Tensor y, const Tensor& positions);

/// Records `y` = the slices at `index` (contiguous Int64) along `dim` of x.
Tensor record_slices(std::string_view op, const Tensor& x, Tensor y, std::int64_t dim,
                     const Tensor& index);

Tensor record_masked_fill(const Tensor& x, const Tensor& mask, Tensor y);

}  // namespace quanta::gradients
