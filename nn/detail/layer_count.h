#pragma once

// Private: how many layers a network of like ones may have.

#include <cstdint>
#include <string_view>

#include "quanta/runtime/check.h"

namespace quanta::nn::detail {

/// Far more than any network has, and few enough to be made: a number that was read from a hostile
/// file must not make layers until memory ends.
inline constexpr std::int64_t kMostLayers = 65536;

inline void check_layer_count(std::string_view op, std::int64_t count) {
  QUANTA_CHECK(count >= 1 && count <= kMostLayers, "{}: num_layers: expected 1..{}, got {}", op,
               kMostLayers, count);
}

}  // namespace quanta::nn::detail
