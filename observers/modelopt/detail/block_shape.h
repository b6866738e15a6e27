#pragma once

// Private: how a static quantizer sees a tensor as blocks.

#include <optional>

#include "quanta/observers/modelopt/reduce.h"
#include "quanta/runtime/tensor.h"

namespace quanta::modelopt::detail {

/// The split of tensors of one shape into blocks, and back. Blocks of the last axis alone become
/// rows [blocks, block] after padding that axis; otherwise every blocked axis becomes two.
class BlockShape {
 public:
  /// Throws ArgumentError for axes that the tensor has not.
  BlockShape(const Dims& input, const BlockSizes& sizes);

  const Dims& input() const noexcept { return input_; }
  /// Padded with zeros and split; recorded.
  Tensor split(const Tensor& x) const;
  Tensor join(const Tensor& blocks) const;
  /// function(rows) of the blocks as rows [..., elements of a block], joined again; recorded.
  template <typename Function>
  Tensor map_rows(const Tensor& x, Function&& function) const {
    return from_rows(function(to_rows(x)));
  }
  /// The axes of a split tensor that amax keeps.
  const Dims& kept_axes() const noexcept { return kept_; }
  /// What amax is exported as: [..., blocks of a row] for rows.
  std::optional<Dims> exported_sizes() const;

 private:
  Tensor to_rows(const Tensor& x) const;
  Tensor from_rows(const Tensor& rows) const;
  Dims rows_order() const;

  Dims input_;
  BlockSizes sizes_;
  Dims padded_;
  Dims kept_;
  std::int64_t row_block_ = 0;  // 0: not rows
};

}  // namespace quanta::modelopt::detail
