#pragma once

// Private: how a view of a tensor is made of it by operators that look at sizes alone.

#include <cstdint>
#include <vector>

#include "quanta/runtime/dims.h"

namespace quanta::graph::detail {

/// One operator. `numbers` are: the order of dimensions (Transpose), sizes (Reshape, Expand), the
/// first index of each dimension (Slice, with `ends` behind the last one, and `steps`), or positions
/// along the only dimension, row by row (Gather, whose result has `sizes`).
struct ViewStep {
  enum class Kind : std::uint8_t { Transpose, Reshape, Slice, Expand, Gather };
  Kind kind = Kind::Reshape;
  std::vector<std::int64_t> numbers{};
  std::vector<std::int64_t> ends{};
  std::vector<std::int64_t> steps{};
  Dims sizes{};  ///< of the result
};

/// Sizes and strides of a tensor, and where it begins, in elements.
struct Layout {
  Dims sizes{};
  Dims strides{};
  std::int64_t offset = 0;
};

/// The operators that make `view` of `base`, which lies without gaps or overlaps in some order of
/// its dimensions and whose memory has all of the view's elements. Empty where both are the same.
/// Neither is empty. A view that no Slice, Reshape, Transpose and Expand can make is gathered.
std::vector<ViewStep> view_steps(const Layout& base, const Layout& view);

}  // namespace quanta::graph::detail
