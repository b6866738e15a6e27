#include "quanta/nn/detail/float_conv.h"

#include "quanta/nn/detail/padding.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::detail {

ConvOptions op_options(const ConvNdOptions& options) {
  return {.stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation,
          .groups = options.groups};
}

ConvTransposeOptions op_options(const ConvTransposeNdOptions& options) {
  return {.stride = options.stride,
          .padding = options.padding,
          .output_padding = options.output_padding,
          .dilation = options.dilation,
          .groups = options.groups};
}

ConvOptions conv_options(const ConvNdOptions& options) {
  ConvOptions result = op_options(options);
  if (options.padding_mode != PaddingMode::Zeros) result.padding = {0};
  return result;
}

Tensor pad_for(const Tensor& x, const ConvNdOptions& options) {
  if (options.padding_mode == PaddingMode::Zeros) return x;
  return pad_input(fmt::format("Conv{}d", options.padding.size()), x, options.padding,
                   options.padding_mode);
}

Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias,
            const ConvNdOptions& options) {
  const std::size_t spatial = options.kernel_size.size();
  if (spatial == 1) return conv1d(x, weight, bias, conv_options(options));
  if (spatial == 2) return conv2d(x, weight, bias, conv_options(options));
  return conv3d(x, weight, bias, conv_options(options));
}

Tensor conv_transpose(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const ConvTransposeNdOptions& options) {
  const ConvTransposeOptions arguments = op_options(options);
  const std::size_t spatial = options.kernel_size.size();
  if (spatial == 1) return conv_transpose1d(x, weight, bias, arguments);
  if (spatial == 2) return conv_transpose2d(x, weight, bias, arguments);
  return conv_transpose3d(x, weight, bias, arguments);
}

}  // namespace quanta::nn::detail
