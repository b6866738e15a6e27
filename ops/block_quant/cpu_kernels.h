#pragma once

// Private: the loops of dynamic block quantization.

#include <cstdint>

#include "quanta/runtime/block_math.h"

namespace quanta::cpu {

/// Quantizes and dequantizes a row of `count` floats in blocks of `block` (the last may be short):
/// dst[i] = math::round_block_element(src[i] * scale) * unscale. The blocks' unscale factors go to
/// `unscales` unless it is null.
void dynamic_block_row(const float* src, std::int64_t count, std::int64_t block,
                       const math::BlockFormat& format, float* dst, float* unscales);

}  // namespace quanta::cpu
