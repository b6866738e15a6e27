#pragma once

// Private: ops that move whole parts of tensors, on the tape. Each `out` is the result of the op.

#include <cstdint>

#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

Tensor record_flip(const Tensor& x, const Dims& dims, Tensor out);
Tensor record_repeat(const Tensor& x, const Dims& repeats, Tensor out);
Tensor record_unfold(const Tensor& x, std::int64_t dimension, std::int64_t step, Tensor out);
Tensor record_channel_shuffle(const Tensor& x, std::int64_t groups, Tensor out);
Tensor record_pixel_shuffle(const Tensor& x, std::int64_t upscale_factor, Tensor out);
Tensor record_pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor, Tensor out);
/// Zeros around x.
Tensor record_constant_pad(const Tensor& x, const Dims& pad, Tensor out);

}  // namespace quanta::gradients
