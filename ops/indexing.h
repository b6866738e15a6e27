#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <variant>

#include "quanta/runtime/tensor.h"

/// Picking and replacing elements.
///
/// Results keep dtype, scale and zero point. Tensors have any dtype of whole bytes and any strides;
/// index tensors are Int64 or Int32. A tensor quantized per channel is refused with
/// UnsupportedError where elements are picked one by one, as in torch; slices and single indices
/// (views) follow the channel axis. An index out of range throws ArgumentError before anything is
/// written. Many threads may call these functions at once while nobody writes to the arguments;
/// those whose names end in an underscore write to their first.
namespace quanta {

/// start:stop:step of a dimension, as in Python; step > 0.
struct Slice {
  std::optional<std::int64_t> start = {};
  std::optional<std::int64_t> stop = {};
  std::int64_t step = 1;
};
/// As many whole dimensions as are left over (Python's `...`).
struct Ellipsis {};
/// A new dimension of size 1 (Python's `None`).
struct NewAxis {};

/// One entry between the brackets of x[...]: a Slice, an integer, an index tensor, a Bool mask.
using TensorIndex = std::variant<Slice, Ellipsis, NewAxis, std::int64_t, Tensor>;

/// x[indices] with the rules of torch and numpy: slices and integers give a view; index tensors
/// are broadcast together and their dimensions take the place of those that they index (the front,
/// when these are not neighbours); a Bool tensor stands for the positions where it holds; negative
/// indices count from the end. With an index tensor the result is a copy.
///   index(x, {Slice{}, 0, Slice{1, 3}})
///   index(x, {Ellipsis{}, positions})
Tensor index(const Tensor& x, std::span<const TensorIndex> indices);
Tensor index(const Tensor& x, std::initializer_list<TensorIndex> indices);

/// x[indices] = values, in place. `values` broadcasts to the sizes of x[indices]; for a quantized
/// `x` it is Float32 (quantized with x's parameters) or has x's dtype and parameters; else it is
/// converted to x's dtype. Where a position comes more than once the last value stays. Returns `x`.
/// Throws ArgumentError when elements of `x` share memory. Same as torch.index_put_.
const Tensor& index_put_(const Tensor& x, std::span<const TensorIndex> indices,
                         const Tensor& values);
const Tensor& index_put_(const Tensor& x, std::initializer_list<TensorIndex> indices,
                         const Tensor& values);
const Tensor& index_put_(const Tensor& x, std::initializer_list<TensorIndex> indices, double value);

/// The slices index[0], index[1], ... along `dim`; `index` is 1-d (or one 0-d index) with numbers
/// 0..size-1. Same as torch.index_select.
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);

/// out[i][j] = x[index[i][j]][j] for dim 0, and so on; sizes of `index`, which has as many
/// dimensions as `x` and is nowhere larger but along `dim`. Same as torch.gather.
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);

/// Elements of the flattened `x` at `index`, in its sizes; negative ones count from the end. Same
/// as torch.take.
Tensor take(const Tensor& x, const Tensor& index);

/// `value` where `mask` (Bool, broadcast to x) holds; a quantized x stores the value's code. In
/// place and returning `x`, or as a copy. Throws ArgumentError when elements of `x` share memory.
/// Same as torch.masked_fill_ and torch.masked_fill.
const Tensor& masked_fill_(const Tensor& x, const Tensor& mask, double value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

/// The positions of the elements that are not 0, one row each: Int64 [count, x.dim()]. Plain
/// dtypes. Same as torch.nonzero.
Tensor nonzero(const Tensor& x);

}  // namespace quanta
