#include <algorithm>

#include "quanta/observers/modelopt/detail/block_shape.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::modelopt::detail {

BlockShape::BlockShape(const Dims& input, const BlockSizes& sizes)
    : input_(input), sizes_(sizes), padded_(input) {
  const auto rank = static_cast<std::int64_t>(input.size());
  for (auto& [axis, block] : sizes_) {
    axis = wrap_dim(axis, rank, "TensorQuantizer", "block_sizes");
    const auto d = static_cast<std::size_t>(axis);
    if (!block) block = input[d];
    padded_[d] = round_up(input[d], *block);
  }
  if (sizes_.size() == 1 && sizes_[0].first == rank - 1) {
    row_block_ = *sizes_[0].second;
    kept_ = {0};
    return;
  }
  std::int64_t position = 0;
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    kept_.push_back(position);
    const bool split = std::any_of(sizes_.begin(), sizes_.end(),
                                   [&](const auto& entry) { return entry.first == axis; });
    position += split ? 2 : 1;
  }
}

Tensor BlockShape::split(const Tensor& x) const {
  const Tensor padded = reduce_block_padding(x, sizes_);
  if (row_block_ > 0) return padded.reshape({-1, row_block_});
  return split_blocks(padded, sizes_).values;
}

Tensor BlockShape::join(const Tensor& blocks) const {
  Tensor result = blocks.reshape(padded_);
  for (std::size_t d = 0; d < input_.size(); ++d) {
    if (padded_[d] != input_[d]) {
      result = result.narrow(static_cast<std::int64_t>(d), 0, input_[d]);
    }
  }
  return result;
}

// The axes of a split tensor: those that amax keeps, then those within blocks.
Dims BlockShape::rows_order() const {
  Dims order = kept_;
  const auto rank = static_cast<std::int64_t>(input_.size() + sizes_.size());
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (std::find(kept_.begin(), kept_.end(), axis) == kept_.end()) order.push_back(axis);
  }
  return order;
}

Tensor BlockShape::to_rows(const Tensor& x) const {
  const Tensor blocks = split(x);
  if (row_block_ > 0) return blocks;
  const Tensor ordered = blocks.permute(rows_order());
  Dims sizes = Dims::filled(0, 0);
  for (std::size_t d = 0; d < kept_.size(); ++d) sizes.push_back(ordered.sizes()[d]);
  sizes.push_back(-1);
  return ordered.reshape(sizes);
}

Tensor BlockShape::from_rows(const Tensor& rows) const {
  if (row_block_ > 0) return join(rows);
  const Dims order = rows_order();
  Dims block_axes;  // the size of each axis of a split tensor
  for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(input_.size()); ++axis) {
    const auto found = std::find_if(sizes_.begin(), sizes_.end(),
                                    [&](const auto& entry) { return entry.first == axis; });
    const std::int64_t length = padded_[static_cast<std::size_t>(axis)];
    const std::int64_t block = found == sizes_.end() ? 0 : *found->second;
    block_axes.push_back(block == 0 ? length : length / block);
    if (block != 0) block_axes.push_back(block);
  }
  Dims ordered;
  Dims back = Dims::filled(order.size(), 0);
  for (std::size_t d = 0; d < order.size(); ++d) {
    ordered.push_back(block_axes[static_cast<std::size_t>(order[d])]);
    back[static_cast<std::size_t>(order[d])] = static_cast<std::int64_t>(d);
  }
  return join(rows.reshape(ordered).permute(back));
}

std::optional<Dims> BlockShape::exported_sizes() const {
  if (row_block_ == 0) return std::nullopt;
  Dims sizes = padded_;
  sizes[sizes.size() - 1] /= row_block_;
  return sizes;
}

}  // namespace quanta::modelopt::detail
