#pragma once

// Private: softmax of one row of neighbouring elements.

#include <cstdint>

namespace quanta::cpu {

/// dst[i] = exp(src[i] - max) / sum of those, for i in [0, count), count >= 1. Sums are taken in an
/// order that depends on nothing but `count`, so every instruction set gives the same floats. NaN
/// or +infinity anywhere makes the whole row NaN. `src` may be `dst`.
void softmax_row(const float* src, std::int64_t count, float* dst);

}  // namespace quanta::cpu
