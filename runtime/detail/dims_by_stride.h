#pragma once

// Private: the dimensions of a view in the order in which they lie in memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "quanta/runtime/dims.h"

namespace quanta::detail {

/// The dimensions with other than one index, by rising stride.
inline Dims dims_by_stride(const Dims& sizes, const Dims& strides) {
  Dims order;
  const auto by_stride = [&](std::int64_t a, std::int64_t b) {
    return strides[static_cast<std::size_t>(a)] < strides[static_cast<std::size_t>(b)];
  };
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const auto dim = static_cast<std::int64_t>(d);
    order.push_back(dim);
    std::rotate(std::upper_bound(order.begin(), order.end() - 1, dim, by_stride), order.end() - 1,
                order.end());
  }
  return order;
}

}  // namespace quanta::detail
