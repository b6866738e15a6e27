#pragma once

// Private: the formats that ModelOpt's pairs of exponent and mantissa bits stand for.

#include <optional>

#include "quanta/ops/block_quant.h"
#include "quanta/runtime/block_math.h"

namespace quanta::detail {

/// The format of block elements, or nothing: 2..8, (4,3), (5,2), (3,2), (2,3), (2,1), (1,2), (0,3),
/// (3,0).
std::optional<math::FloatFormat> element_format(const NumBits& bits);

}  // namespace quanta::detail
