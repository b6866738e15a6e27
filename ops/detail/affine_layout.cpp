#include "quanta/ops/detail/affine_layout.h"

#include "quanta/ops/detail/elements.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {
namespace {

// What every block is multiplied with to give the whole tensor: without blocks 1 or the size.
Dims broadcast_blocks(std::string_view op, std::string_view argument, const Dims& sizes,
                      const Dims& shape) {
  QUANTA_CHECK(broadcasts_to(shape, sizes),
               "{}: {}: expected a shape that can be expanded to {}, got {}", op, argument, sizes,
               shape);
  Dims blocks;
  const std::size_t skipped = sizes.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    blocks.push_back(shape[d] == 1 ? sizes[d + skipped] : 1);
  }
  return blocks;
}

}  // namespace

Dims resolve_blocks(std::string_view op, std::string_view argument, const Dims& sizes,
                    const Dims& shape, const Dims& block_size) {
  if (block_size.empty()) return broadcast_blocks(op, argument, sizes, shape);
  QUANTA_CHECK(block_size.size() == shape.size(),
               "{}: block_size: expected one entry for each of the {} dimensions of {}, got {}", op,
               shape.size(), argument, block_size);
  QUANTA_CHECK(shape.size() <= sizes.size(),
               "{}: {}: expected at most the {} dimensions of the tensor, got {}", op, argument,
               sizes.size(), shape);
  Dims blocks;
  const std::size_t skipped = sizes.size() - shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t size = sizes[d + skipped];
    const std::int64_t block = block_size[d];
    QUANTA_CHECK(block == -1 || block > 0, "{}: block_size: expected -1 or entries > 0, got {}", op,
                 block_size);
    if (block == -1) {
      QUANTA_CHECK(shape[d] > 0 && size % shape[d] == 0,
                   "{}: {}: expected a size along dimension {} that divides {}, got {}", op,
                   argument, d + skipped, size, shape);
      blocks.push_back(size / shape[d]);
      continue;
    }
    QUANTA_CHECK(
        size % block == 0 && size / block == shape[d],
        "{}: block_size: expected size of {} times block to be {} along dimension {}, got {} "
        "times {}",
        op, argument, size, d + skipped, shape[d], block);
    blocks.push_back(block);
  }
  return blocks;
}

cpu::AffineLayout affine_layout(std::string_view op, std::string_view argument, const Dims& sizes,
                                const Dims& shape, const Dims& block_size, MemoryFormat format) {
  const Dims blocks = resolve_blocks(op, argument, sizes, shape, block_size);
  cpu::AffineLayout layout;
  const Dims strides = contiguous_strides(shape);
  const std::size_t skipped = sizes.size() - shape.size();
  const auto add = [&layout](std::int64_t size, std::int64_t stride) {
    if (size == 1) return;
    const std::size_t rank = layout.sizes.size();
    if (rank > 0 && layout.strides.back() == stride * size) {
      layout.sizes[rank - 1] *= size;
      layout.strides[rank - 1] = stride;
      return;
    }
    layout.sizes.push_back(size);
    layout.strides.push_back(stride);
  };
  const auto add_axis = [&](std::size_t axis) {
    if (axis < skipped) return add(sizes[axis], 0);
    add(shape[axis - skipped], strides[axis - skipped]);
    add(blocks[axis - skipped], 0);
  };
  const bool channels_last = format == MemoryFormat::ChannelsLast;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (!channels_last || axis != 1) add_axis(axis);
  }
  if (channels_last) add_axis(1);
  layout.parameters = product(shape);
  return layout;
}

}  // namespace quanta::detail
