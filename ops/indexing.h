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

/// What becomes of an element and of those that are scattered to its place.
enum class ScatterReduce : std::uint8_t { None, Add, Multiply, Minimum, Maximum };

// The functions from here to one_hot are those of ONNX: negative indices count from the end. Where
// a place comes more than once, elements follow each other in the order of `index`. Results are
// new and contiguous. Reductions take plain tensors that C++ can order; of Bool, Add and Maximum
// are "or", the others "and".

/// A copy of x with src[i][j] at [index[i][j]][j] for dim 0, and so on. `index` has the sizes of
/// `src`, which are nowhere larger than those of x but along `dim`. Same as ScatterElements, and as
/// torch.scatter and torch.scatter_reduce for indices >= 0.
Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src,
               ScatterReduce reduce = ScatterReduce::None);
/// A copy of x with the slices of `updates` where the rows of `index` [..., k] say: a row names a
/// slice by its first k dimensions. `updates` has the sizes of `index` without the last, then those
/// of a slice. Same as ScatterND.
Tensor scatter_nd(const Tensor& x, const Tensor& index, const Tensor& updates,
                  ScatterReduce reduce = ScatterReduce::None);
/// The slices of x that the rows of `index` [..., k] name; the first `batch_dims` dimensions of
/// both belong together. Same as GatherND.
Tensor gather_nd(const Tensor& x, const Tensor& index, std::int64_t batch_dims = 0);
/// A copy of the cache [batch, ..., length, ...] with `update` written along `dim` from
/// start[batch] on (undefined: from 0); `circular` goes on at the front behind the end. Same as
/// TensorScatter.
Tensor scatter_cache(const Tensor& x, const Tensor& update, const Tensor& start, std::int64_t dim,
                     bool circular = false);
/// index with `length` (>= 0) added to negative numbers, as Int64: for functions that take none.
Tensor wrap_indices(const Tensor& index, std::int64_t length);
/// values[1] where `index` along a new dimension `dim` of size `depth` says, values[0] elsewhere;
/// an index outside -depth..depth-1 gives a line without values[1]. `values` is a plain tensor of
/// two elements. Same as OneHot.
Tensor one_hot(const Tensor& index, std::int64_t depth, const Tensor& values,
               std::int64_t dim = -1);

/// The positions of the elements that are not 0, one row each: Int64 [count, x.dim()]. Plain
/// dtypes. On a CUDA device the call waits for how many there are. Same as torch.nonzero.
Tensor nonzero(const Tensor& x);

}  // namespace quanta
