#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/runtime/tensor.h"

/// The quantizers of NVIDIA's ModelOpt and pytorch-quantization. Functions of tensors may be called
/// from many threads at once.
namespace quanta::modelopt {

/// The size of the blocks along an axis, or nothing: the whole axis is one. In the order given.
using BlockSizes = std::vector<std::pair<std::int64_t, std::optional<std::int64_t>>>;

/// The axes of `axes` (negative ones count from the end), sorted. Throws ArgumentError
/// `op: argument: ...` for one outside the rank or given twice.
Dims wrap_axes(const Dims& axes, std::int64_t rank, std::string_view op, std::string_view argument);

/// The largest magnitude over every axis that is not kept; those keep size 1. Over all of them (no
/// axis is kept, or one element is left): a scalar. Float32, NaN where there is one. `x` is a
/// floating tensor with at least one element. Throws ArgumentError.
Tensor reduce_amax(const Tensor& x, const Dims& kept_axes = {});

/// The longest block that an axis which is shorter is padded to: a wrong number does not become
/// memory.
inline constexpr std::int64_t kLongestPaddedBlock = 65536;

/// Pads every axis that has a block size with zeros, up to a multiple of it. Throws ArgumentError,
/// also for a block that is longer than its axis and than kLongestPaddedBlock.
Tensor reduce_block_padding(const Tensor& x, const BlockSizes& block_sizes);

/// The largest magnitude of each block; a size that the block does not divide is padded with zeros.
/// Throws ArgumentError.
Tensor reduce_block_amax(const Tensor& x, const BlockSizes& block_sizes);

/// `x` with every axis that has a block size split into (blocks, block).
struct SplitBlocks {
  Tensor values;
  Dims inner_axes;  ///< the axes of `values` within a block
};
/// Throws ArgumentError for a block size that does not divide.
SplitBlocks split_blocks(const Tensor& x, const BlockSizes& block_sizes);

}  // namespace quanta::modelopt
