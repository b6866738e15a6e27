#pragma once

// Private: the largest magnitude of neighbouring floats.

#include <cstdint>

namespace quanta::cpu {

/// The largest magnitude; NaN if there is one.
float largest_magnitude(const float* src, std::int64_t count);

}  // namespace quanta::cpu
