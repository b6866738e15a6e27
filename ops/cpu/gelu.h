#pragma once

// Private: GELU of neighbouring floats.

#include <cstdint>

namespace quanta::cpu {

enum class GeluKind : std::uint8_t { Erf, Tanh };

/// dst[i] = x * (1 + erf(x / sqrt(2))) / 2, or its tanh form, within 5e-7 of the exact value:
/// math::gelu_float and gelu_tanh_float in vectors. The same floats on every instruction set. `src`
/// may be `dst`.
void gelu_row(GeluKind kind, const float* src, std::int64_t count, float* dst);

}  // namespace quanta::cpu
