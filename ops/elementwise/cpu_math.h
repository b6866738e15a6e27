#pragma once

// Private: functions of many floats in vectors. Products and sums are rounded one by one, so every
// instruction set gives the same.

#include <cstdint>

namespace quanta::cpu {

enum class MathFunction : std::uint8_t { Exp, Erf, Sqrt, Reciprocal };

/// dst[i] = function(src[i]). `src` may be `dst`.
void math_row(MathFunction function, const float* src, std::int64_t count, float* dst);

}  // namespace quanta::cpu
