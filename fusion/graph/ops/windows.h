#pragma once

// Private: what the ONNX operators that slide a window share: kernel_shape, strides, dilations,
// pads and auto_pad.

#include <cstdint>

#include "quanta/fusion/graph/op_table.h"

namespace quanta::graph {

/// One number for each spatial dimension.
struct WindowShape {
  Dims kernel, stride, dilation;
  Dims begin, end;  ///< padding; of sizes that were known

  std::size_t rank() const noexcept { return kernel.size(); }
  std::int64_t reach(std::size_t d) const noexcept { return dilation[d] * (kernel[d] - 1) + 1; }
  bool even_padding() const noexcept { return begin == end; }
};

enum class AutoPad : std::uint8_t { NotSet, SameUpper, SameLower, Valid };
/// Throws ArgumentError for another text.
AutoPad auto_pad_of(const NodeCall& call);

/// A list attribute with `rank` numbers in `low`..2^30, or as many of `otherwise`. Throws
/// ArgumentError.
Dims window_list(const NodeCall& call, std::string_view name, std::size_t rank,
                 std::int64_t otherwise, std::int64_t low);

/// The attributes of a call whose kernel is known, without padding.
WindowShape window_shape(const NodeCall& call, const Dims& kernel);
/// The kernel_shape attribute of a pooling, whose input has `rank` spatial dimensions, or any number
/// of them (0).
Dims kernel_shape(const NodeCall& call, std::size_t rank = 0);

/// Sets the padding of a convolution or pooling over these spatial sizes: pads, or what auto_pad
/// asks for.
void set_padding(const NodeCall& call, const Dims& spatial_sizes, WindowShape& window);
/// The same where no sizes are known: false when the padding depends on them.
bool set_static_padding(const NodeCall& call, WindowShape& window);

/// Sizes behind batch and channels. Throws ArgumentError for fewer dimensions.
Dims spatial_sizes(const NodeCall& call, const Tensor& x);

}  // namespace quanta::graph
