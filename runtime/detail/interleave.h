#pragma once

// Private: planes to pixels, the copy that turns contiguous order into channels-last.

#include <cstdint>

namespace quanta::detail {

/// dst[i * channels + c] = src[c * plane + i] for i in [0, count).
void interleave_planes(const std::uint8_t* src, std::int64_t plane, std::int64_t channels,
                       std::int64_t count, std::uint8_t* dst);
void interleave_planes(const std::uint32_t* src, std::int64_t plane, std::int64_t channels,
                       std::int64_t count, std::uint32_t* dst);

}  // namespace quanta::detail
