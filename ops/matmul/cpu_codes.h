#pragma once

// Private: the product of two quantized matrices, from codes to codes.

#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// out = quantize(float(sum of (a - za) * (b - zb)) * (sa * sb)) for each element, with exact sums.
/// All per tensor and of one dtype, QUInt8 or QInt8, and of one rank >= 2; `out` is contiguous, batch
/// dimensions of size 1 are broadcast, no size is 0, and the inner one is at most kMaxExactDepth.
/// Returns the kernel's name.
std::string_view matmul_codes(const QTensor& lhs, const QTensor& rhs, const QTensor& out);

}  // namespace quanta::cpu
