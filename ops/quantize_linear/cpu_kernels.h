#pragma once

// Private: SIMD kernels of quantization by division.

#include <cstdint>

namespace quanta::cpu {

/// math::quantize_quotient over `count` neighbours, with all codes of the dtype. `dst` may not be
/// `src`.
void quantize_quotients(const float* src, std::uint8_t* dst, std::int64_t count, float scale,
                        std::int32_t zero_point);
void quantize_quotients(const float* src, std::int8_t* dst, std::int64_t count, float scale,
                        std::int32_t zero_point);

}  // namespace quanta::cpu
