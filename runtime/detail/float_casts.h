#pragma once

// Private: arrays of float32 to codes of small float formats and back. Vectors give the bits of
// math::encode_float and math::decode_float on every instruction set; threads share long arrays.

#include <cstdint>

#include "quanta/runtime/float_format.h"

namespace quanta::detail {

/// For formats of up to 8 bits, or of up to 16.
void encode_floats(const float* src, std::int64_t count, const math::FloatFormat& format,
                   math::Overflow overflow, std::uint8_t* dst);
void encode_floats(const float* src, std::int64_t count, const math::FloatFormat& format,
                   math::Overflow overflow, std::uint16_t* dst);

void decode_floats(const std::uint8_t* src, std::int64_t count, const math::FloatFormat& format,
                   float* dst);
void decode_floats(const std::uint16_t* src, std::int64_t count, const math::FloatFormat& format,
                   float* dst);

}  // namespace quanta::detail
