#pragma once

// Private: where the elements of views lie, and which views may be written in place.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/dims_by_stride.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Calls `visit` with the offset of each element of a view, in order, while it returns true; whether
/// it always did.
template <typename Visit>
bool each_offset(const Dims& sizes, const Dims& strides, Visit&& visit) {
  Dims position = Dims::filled(sizes.size(), 0);
  std::int64_t offset = 0;
  const std::int64_t count = product(sizes);
  for (std::int64_t i = 0; i < count; ++i) {
    if (!visit(offset)) return false;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      offset += strides[d];
      if (++position[d] < sizes[d]) break;
      offset -= strides[d] * sizes[d];
      position[d] = 0;
    }
  }
  return true;
}

/// Whether two elements of a view with these sizes and strides (>= 0) are one place in memory.
inline bool overlaps_itself(const Dims& sizes, const Dims& strides) {
  if (product(sizes) == 0) return false;
  // A dimension that steps over all that the smaller ones reach keeps elements apart.
  std::int64_t reach = 0;
  bool apart = true;
  for (const std::int64_t d : dims_by_stride(sizes, strides)) {
    const std::int64_t stride = strides[static_cast<std::size_t>(d)];
    if (stride == 0) return true;
    apart = apart && stride > reach;
    reach += (sizes[static_cast<std::size_t>(d)] - 1) * stride;
  }
  if (apart) return false;
  // Only as_strided and unfold make such views: count the places.
  std::vector<bool> seen(static_cast<std::size_t>(reach) + 1);
  return !each_offset(sizes, strides, [&](std::int64_t offset) {
    const bool first = !seen[static_cast<std::size_t>(offset)];
    seen[static_cast<std::size_t>(offset)] = true;
    return first;
  });
}

/// Throws ArgumentError when a write to one element of `x` would change another one, or be missed
/// by the tape.
inline void check_writable(std::string_view op, std::string_view argument, const Tensor& x) {
  autograd::require_changeable(op, x);
  QUANTA_CHECK(x.is_dense() || !overlaps_itself(x.sizes(), x.strides()),
               "{}: {}: expected elements that do not share memory (clone an expanded view first), "
               "got sizes {} with strides {}",
               op, argument, x.sizes(), x.strides());
}

/// Whether the memory from the first to the last element of each meets that of the other.
inline bool memory_meets(const Tensor& a, const Tensor& b) {
  if (a.storage().get() != b.storage().get() || a.numel() == 0 || b.numel() == 0) return false;
  const auto end = [](const Tensor& x) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < x.sizes().size(); ++d) last += (x.sizes()[d] - 1) * x.strides()[d];
    return x.device_ptr() + static_cast<std::size_t>(last + 1) * item_size(x.dtype());
  };
  return a.device_ptr() < end(b) && b.device_ptr() < end(a);
}

}  // namespace quanta::detail
