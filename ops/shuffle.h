#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Rearrangements of channels. Same as in torch.nn.functional.
///
/// Tensors have any dtype of whole bytes, quantized ones per tensor. Results are new tensors with
/// the input's memory order and parameters. All throw ArgumentError for sizes that do not divide,
/// UnsupportedError for other dtypes. Many threads may call them at once while nobody writes to the
/// arguments.
namespace quanta {

/// x [N, C, spatial...]: channel g * (C / groups) + i becomes channel i * groups + g.
Tensor channel_shuffle(const Tensor& x, std::int64_t groups);

/// [..., C * r^2, H, W] -> [..., C, H * r, W * r].
Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor);

/// [..., C, H * r, W * r] -> [..., C * r^2, H, W].
Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor);

}  // namespace quanta
