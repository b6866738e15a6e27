#pragma once

// Private: the checks of indices that the embeddings in ops and nn share.

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
  check_integers(op, "indices", indices);
  std::vector<std::int64_t> values = indices.to_int64_vector();
  for (const std::int64_t index : values) {
    QUANTA_CHECK(index >= 0 && index < rows, "{}: indices: expected rows in 0..{}, got {}", op,
                 rows - 1, index);
  }
  return values;
}

}  // namespace quanta::detail
