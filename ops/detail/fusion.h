#pragma once

// Private: the names of Fusion, for attributes.

#include <array>
#include <span>
#include <string_view>

#include "quanta/ops/conv.h"

namespace quanta {

inline std::span<const std::string_view> enumerators(Fusion) {
  static constexpr std::array<std::string_view, 2> kNames{"None", "ReLU"};
  return kNames;
}

}  // namespace quanta
