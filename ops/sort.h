#pragma once

#include <cstdint>

#include "quanta/ops/reduce.h"
#include "quanta/runtime/tensor.h"

namespace quanta {

// Ordering. Values keep the dtype, scale and zero point; indices are Int64. Codes are compared as
// integers, NaN counts as the largest number. Float32, Float64, integers, Bool and per-tensor
// QUInt8, QInt8, QInt32 of any strides; others are refused with UnsupportedError.

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

/// The `k` largest or smallest elements along a dimension, best first; of equal ones those that
/// come first. 0 <= k <= size. Same as torch.topk, whose choice among equal ones is open.
ValuesIndices topk(const Tensor& x, std::int64_t k, const TopkOptions& options = {});

}  // namespace quanta
