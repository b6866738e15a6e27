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

std::optional<Dims> BlockShape::exported_sizes() const {
  if (row_block_ == 0) return std::nullopt;
  Dims sizes = padded_;
  sizes[sizes.size() - 1] /= row_block_;
  return sizes;
}

}  // namespace quanta::modelopt::detail
