#include "quanta/observers/modelopt/reduce.h"

#include <algorithm>
#include <string_view>

#include "quanta/observers/detail/reduce.h"
#include "quanta/ops/pad.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

std::int64_t block_along(const std::pair<std::int64_t, std::optional<std::int64_t>>& entry,
                         std::int64_t size) {
  return entry.second.value_or(size);
}

void check_blocks(std::string_view op, const Tensor& x, const BlockSizes& block_sizes) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  Dims axes;
  for (const auto& [axis, block] : block_sizes) {
    axes.push_back(axis);
    QUANTA_CHECK(block.value_or(1) >= 1, "{}: block_sizes: expected at least 1 for axis {}, got {}",
                 op, axis, block.value_or(0));
  }
  wrap_axes(axes, x.dim(), op, "block_sizes");
}

}  // namespace

Dims wrap_axes(const Dims& axes, std::int64_t rank, std::string_view op,
               std::string_view argument) {
  Dims wrapped;
  for (const std::int64_t axis : axes) {
    const std::int64_t each = wrap_dim(axis, rank, op, argument);
    QUANTA_CHECK(std::find(wrapped.begin(), wrapped.end(), each) == wrapped.end(),
                 "{}: {}: expected every axis once, got {} of a tensor with {} axes", op, argument,
                 axes, rank);
    wrapped.push_back(each);
  }
  std::sort(wrapped.begin(), wrapped.end());
  return wrapped;
}

Tensor reduce_amax(const Tensor& x, const Dims& kept_axes) {
  constexpr std::string_view kOp = "reduce_amax";
  QUANTA_CHECK(x.defined() && x.is_floating_point(), "{}: x: expected a floating tensor, got {}",
               kOp, x.defined() ? to_string(x.dtype()) : "an undefined one");
  QUANTA_CHECK(x.numel() > 0, "{}: x: expected at least one element, got {}", kOp, x.sizes());
  const Dims kept = wrap_axes(kept_axes, x.dim(), kOp, "axis");
  if (kept.empty()) {
    const ValueRange range = quanta::detail::tensor_range(quanta::detail::dense_floats(x.detach()));
    return Tensor::scalar(static_cast<double>(quanta::detail::largest_magnitudes(range)[0]));
  }
  Dims sizes = Dims::filled(x.sizes().size(), 1);
  for (const std::int64_t axis : kept) sizes[static_cast<std::size_t>(axis)] = x.size(axis);
  const ValueRange range = quanta::detail::EntryElements(kOp, x, sizes).range();
  const Tensor amax = Tensor::from_values(quanta::detail::largest_magnitudes(range), sizes);
  return amax.numel() == 1 ? amax.reshape({}) : amax;
}

Tensor reduce_block_padding(const Tensor& x, const BlockSizes& block_sizes) {
  check_blocks("reduce_block_padding", x, block_sizes);
  Dims padding = Dims::filled(0, 0);
  for (std::int64_t axis = x.dim() - 1; axis >= 0; --axis) {
    std::int64_t missing = 0;
    for (const auto& entry : block_sizes) {
      if (wrap_dim(entry.first, x.dim(), "reduce_block_padding", "block_sizes") != axis) continue;
      const std::int64_t block = std::max<std::int64_t>(block_along(entry, x.size(axis)), 1);
      QUANTA_CHECK(
          block <= std::max(x.size(axis), kLongestPaddedBlock),
          "reduce_block_padding: block_sizes: expected at most {} for an axis of {}, got {}",
          std::max(x.size(axis), kLongestPaddedBlock), x.size(axis), block);
      missing = (block - x.size(axis) % block) % block;
    }
    if (padding.size() + 2 <= Dims::kMaxDims) {
      padding.push_back(0);
      padding.push_back(missing);
    } else {
      QUANTA_SUPPORTED(missing == 0,
                       "reduce_block_padding: block_sizes: expected padding of the last {} axes "
                       "only, got axis {}",
                       Dims::kMaxDims / 2, axis);
    }
  }
  const bool none = std::all_of(padding.begin(), padding.end(), [](auto n) { return n == 0; });
  return none ? x : pad(x, padding);
}

SplitBlocks split_blocks(const Tensor& x, const BlockSizes& block_sizes) {
  constexpr std::string_view kOp = "split_blocks";
  check_blocks(kOp, x, block_sizes);
  Dims sizes;
  Dims inner;
  for (std::int64_t axis = 0; axis < x.dim(); ++axis) {
    std::optional<std::int64_t> block;
    for (const auto& entry : block_sizes) {
      if (wrap_dim(entry.first, x.dim(), kOp, "block_sizes") == axis) {
        block = block_along(entry, x.size(axis));
      }
    }
    if (!block) {
      sizes.push_back(x.size(axis));
      continue;
    }
    const std::int64_t size = x.size(axis);
    QUANTA_CHECK(*block > 0 && size % *block == 0,
                 "{}: block_sizes: expected a divisor of {}, the size of axis {}, got {}", kOp,
                 size, axis, *block);
    sizes.push_back(size / *block);
    sizes.push_back(*block);
    inner.push_back(static_cast<std::int64_t>(sizes.size()) - 1);
  }
  return {x.reshape(sizes), inner};
}

Tensor reduce_block_amax(const Tensor& x, const BlockSizes& block_sizes) {
  check_blocks("reduce_block_amax", x, block_sizes);
  const SplitBlocks split =
      split_blocks(reduce_block_padding(x.detach(), block_sizes), block_sizes);
  Dims kept;
  Dims sizes;
  for (std::int64_t axis = 0; axis < split.values.dim(); ++axis) {
    const bool inner =
        std::find(split.inner_axes.begin(), split.inner_axes.end(), axis) != split.inner_axes.end();
    if (inner) continue;
    kept.push_back(axis);
    sizes.push_back(split.values.size(axis));
  }
  return reduce_amax(split.values, kept).reshape(sizes);
}

}  // namespace quanta::modelopt
