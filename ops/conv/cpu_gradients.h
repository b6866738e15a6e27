#pragma once

// Private: what a float convolution's gradients are made of, through oneDNN. Images are dense and
// channels-last, weights contiguous in torch's order. Works for transposed convolutions as well,
// whose gradients are convolutions.

#include "quanta/ops/cpu/conv_shape.h"

namespace quanta::cpu {

/// diff_src from diff_dst and the weight. `spatial` is 2 or 3.
void conv_backward_data(const ConvShape& shape, int spatial, const float* diff_dst,
                        const float* weight, float* diff_src);

/// diff_weight, and diff_bias [O] unless it is null.
void conv_backward_weights(const ConvShape& shape, int spatial, const float* src,
                           const float* diff_dst, float* diff_weight, float* diff_bias);

}  // namespace quanta::cpu
