#pragma once

// Private: elements that are taken out of a tensor: what their gradients do. On a CUDA device sums
// are taken in the CPU's order, and nothing waits for the host.

#include <cstdint>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// 0, 1, ... in these sizes: what is done to it shows where each element of a result came from.
Tensor positions_of(const Dims& sizes, Device device);
/// The same for results whose element [i][j]... is x[index[i][j]][j]... along `dim` of sizes.
Tensor positions_along(const Tensor& index, std::int64_t dim, const Dims& sizes);

/// Positions in a tensor of so many elements, negative ones counted from its end, as all from its
/// front.
Tensor wrapped_positions(const Tensor& positions, std::int64_t length);

/// Whether a position may come more than once.
enum class Places : std::uint8_t { Any, Distinct };

/// Zeros of these sizes, to which every element of `gradient` is added where `positions` says.
Tensor scatter_add(const Tensor& gradient, const Tensor& positions, const Dims& sizes,
                   Places places = Places::Any);

/// Zeros of these sizes, to whose slices along `dim` those of `gradient` are added, slice i to
/// slice index[i] (contiguous Int64).
Tensor add_slices(const Tensor& gradient, const Tensor& index, const Dims& sizes, std::int64_t dim);

}  // namespace quanta::detail
