#pragma once

#include <cstdint>
#include <optional>

#include "quanta/ops/reduce.h"
#include "quanta/runtime/tensor.h"

/// Ordering elements along a dimension.
///
/// Values keep the dtype, scale and zero point; indices are Int64. Codes are compared as integers,
/// and NaN counts as the largest number. Tensors are Float32, Float64, integers, Bool or per-tensor
/// QUInt8, QInt8, QInt32 with any strides; others are refused with UnsupportedError. Functions
/// throw ArgumentError for a dimension that the tensor does not have. Many threads may call them at
/// once while nobody writes to the arguments.
namespace quanta {

struct SortOptions {
  std::int64_t dim = -1;
  bool descending = false;
};

/// Sorts along a dimension. Always stable: equal elements keep their order, which torch promises
/// for stable=True only. Same as torch.sort.
ValuesIndices sort(const Tensor& x, const SortOptions& options = {});
/// The indices of sort(). Same as torch.argsort.
Tensor argsort(const Tensor& x, const SortOptions& options = {});
/// The values of sort() along dimension 0. Same as torch.msort.
Tensor msort(const Tensor& x);

struct TopkOptions {
  std::int64_t dim = -1;
  bool largest = true;
  bool sorted = true;  ///< torch may leave the order open otherwise; here it is always sorted
};

/// The `k` largest or smallest elements along a dimension, best first; among equal ones those that
/// come first count as better. 0 <= k <= size. Same as torch.topk, which leaves the choice among
/// equal ones open.
ValuesIndices topk(const Tensor& x, std::int64_t k, const TopkOptions& options = {});

struct UniqueResult {
  Tensor values;   ///< each value (or slice) once
  Tensor first;    ///< Int64: where it comes first
  Tensor inverse;  ///< Int64: for each element (or slice) of x, which of `values` it is
  Tensor counts;   ///< Int64: how often it comes
};

struct UniqueOptions {
  /// The slices along this dimension are compared; left out: the elements of the flattened x.
  std::optional<std::int64_t> dim = {};
  bool sorted = true;  ///< else in the order in which they come first
};

/// The different elements. The sizes depend on values: a recording refuses it, and on a CUDA device
/// the call waits for how many there are. Same as ONNX's Unique and, sorted, as numpy.unique.
UniqueResult unique(const Tensor& x, const UniqueOptions& options = {});

}  // namespace quanta
