#pragma once

// Private: float convolutions by the options of the modules.

#include "quanta/nn/conv.h"

namespace quanta::nn::detail {

/// Stride, padding, dilation and groups, as the ops take them.
ConvOptions op_options(const ConvNdOptions& options);
ConvTransposeOptions op_options(const ConvTransposeNdOptions& options);

/// The options of the convolution that follows pad_for.
ConvOptions conv_options(const ConvNdOptions& options);
/// x, padded if that is not with zeros. `options` have one number per spatial dimension.
Tensor pad_for(const Tensor& x, const ConvNdOptions& options);
/// The convolution of x after pad_for.
Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias,
            const ConvNdOptions& options);
Tensor conv_transpose(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const ConvTransposeNdOptions& options);

}  // namespace quanta::nn::detail
