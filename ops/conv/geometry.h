#pragma once

// Private: the argument checks that all convolutions share, and their sizes.

#include <cstdint>
#include <string_view>

#include "quanta/ops/conv.h"
#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/runtime/op_listener.h"
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

inline ConvTransposeOptions with_output_padding(const ConvOptions& options) {
  return {options.stride, options.padding, Dims{0}, options.dilation, options.groups};
}

/// Throws ArgumentError unless weight [O, C/groups, kernel...] (transposed: [C, O/groups, ...]),
/// bias and options fit together. dtypes are checked by the caller.
ConvGeometry conv_geometry(const Tensor& weight, const Tensor& bias,
                           const ConvTransposeOptions& options, std::int64_t spatial,
                           bool transposed);

/// Batch, input and output sizes for x [N, C, spatial...] or [C, spatial...]. Throws ArgumentError
/// for a wrong rank or channel count and when no output is left.
cpu::ConvShape conv_shape(const ConvGeometry& geometry, const Dims& x);

/// Output sizes, including the batch dimension.
Dims conv_output_sizes(const ConvGeometry& geometry, const cpu::ConvShape& shape);

/// Multiply-adds and bytes. The border counts as if it were multiplied too.
OpWork conv_work(const Tensor& x, const Tensor& weight, const Tensor& out, bool transposed);

/// What torch gives for x [N, C, spatial...] or [C, spatial...], by `run` for x with a batch
/// dimension, which gives a channels-last result: 1-d results are contiguous, but those in codes.
template <typename Run>
Tensor with_batch(std::int64_t spatial, const Tensor& x, const Run& run) {
  const bool is_batch = !x.defined() || x.dim() != spatial + 1;
  Tensor out = is_batch ? run(x) : run(x.unsqueeze(0));
  if (spatial == 1 && !out.is_quantized()) out = out.contiguous();
  if (is_batch) return out;
  return out.squeeze(0);
}

}  // namespace quanta::detail
