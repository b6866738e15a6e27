#pragma once

// Private: the indices and bags that all embeddings take.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

inline void check_integers(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined() && (x.dtype() == DType::Int64 || x.dtype() == DType::Int32),
               "{}: {}: expected Int32 or Int64, got {}", op, argument,
               x.defined() ? to_string(x.dtype()) : "an undefined tensor");
}

/// The indices in logical order, all within 0..rows - 1.
inline std::vector<std::int64_t> checked_indices(std::string_view op, const Tensor& indices,
                                                 std::int64_t rows) {
  std::vector<std::int64_t> values = indices.to_int64_vector();
  for (const std::int64_t index : values) {
    QUANTA_CHECK(index >= 0 && index < rows, "{}: indices: expected rows in 0..{}, got {}", op,
                 rows - 1, index);
  }
  return values;
}

/// How bags are cut out of the indices: each row of 2-d indices is one, or offsets say where each
/// begins in 1-d indices.
struct BagCall {
  std::string_view op;
  const Tensor& indices;
  const Tensor& offsets;
  bool include_last_offset;

  /// Checks all but values; gives the number of bags.
  std::int64_t count() const {
    check_integers(op, "indices", indices);
    if (indices.dim() == 2) {
      QUANTA_CHECK(!offsets.defined(), "{}: offsets: expected none for 2-d indices, got a tensor",
                   op);
      return indices.sizes()[0];
    }
    QUANTA_CHECK(indices.dim() == 1, "{}: indices: expected 1 or 2 dimensions, got {}", op,
                 indices.sizes());
    QUANTA_CHECK(offsets.defined(), "{}: offsets: expected a tensor for 1-d indices, got none", op);
    check_integers(op, "offsets", offsets);
    QUANTA_CHECK(offsets.dim() == 1, "{}: offsets: expected 1 dimension, got {}", op,
                 offsets.sizes());
    QUANTA_CHECK(!include_last_offset || offsets.numel() > 0,
                 "{}: offsets: expected at least one with include_last_offset, got none", op);
    return include_last_offset ? offsets.numel() - 1 : offsets.numel();
  }

  /// Bag b covers indices [ends[b], ends[b + 1]). Checks the values.
  std::vector<std::int64_t> ends() const {
    std::vector<std::int64_t> ends;
    if (indices.dim() == 2) {
      for (std::int64_t bag = 0; bag <= indices.sizes()[0]; ++bag) {
        ends.push_back(bag * indices.sizes()[1]);
      }
      return ends;
    }
    ends = offsets.to_int64_vector();
    if (!include_last_offset) ends.push_back(indices.numel());
    std::int64_t last = 0;
    for (const std::int64_t end : ends) {
      QUANTA_CHECK(end >= last && end <= indices.numel(),
                   "{}: offsets: expected numbers that do not fall, within 0..{}, got {} after {}",
                   op, indices.numel(), end, last);
      last = end;
    }
    QUANTA_CHECK(ends[0] == 0 || ends.size() == 1, "{}: offsets: expected 0 first, got {}", op,
                 ends[0]);
    return ends;
  }
};

/// Rows of a table, as many at a time as make a task worth a thread.
inline std::int64_t rows_per_thread(std::int64_t columns) {
  return std::max<std::int64_t>(1, 8192 / columns);
}

}  // namespace quanta::detail
