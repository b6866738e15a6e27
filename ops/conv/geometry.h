#pragma once

// Private: the argument checks that all convolutions share, and their sizes.

#include <cstdint>
#include <string_view>

#include "quanta/ops/conv.h"
#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// What a convolution's weight and options fix.
struct ConvGeometry {
  std::string_view op;  ///< "conv2d", "conv_transpose1d": for messages
  std::int64_t spatial = 2;
  ConvTransposeOptions options;  ///< one number per spatial dimension
  cpu::ConvShape shape;          ///< without batch, in and out

  /// 1-d convolutions run as 2-d ones.
  int kernel_rank() const noexcept { return spatial == 3 ? 3 : 2; }
};

/// "conv2d", "conv_transpose1d", ... Throws ArgumentError unless `spatial` is 1, 2 or 3.
std::string_view conv_name(std::int64_t spatial, bool transposed);

/// Throws ArgumentError unless weight [O, C/groups, kernel...] (transposed: [C, O/groups, ...]),
/// bias and options fit together. dtypes are checked by the caller.
ConvGeometry conv_geometry(const Tensor& weight, const Tensor& bias,
                           const ConvTransposeOptions& options, std::int64_t spatial,
                           bool transposed);

/// Batch, input and output sizes for x [N, C, spatial...] or [C, spatial...]. Throws ArgumentError
/// for a wrong rank or channel count and when no output is left.
cpu::ConvShape conv_shape(const ConvGeometry& geometry, const Dims& x);

/// Of the result, with a batch dimension.
Dims conv_output_sizes(const ConvGeometry& geometry, const cpu::ConvShape& shape);

/// `x` as the kernels read it: with a batch dimension and channels-last.
Tensor conv_input(const ConvGeometry& geometry, const Tensor& x);

/// The kernels' result as torch gives it: 1-d contiguous; without the batch dimension that `x`
/// did not have.
Tensor conv_result(const ConvGeometry& geometry, const Tensor& x, Tensor out);

}  // namespace quanta::detail
