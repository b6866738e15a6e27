#pragma once

// Private: the names of ReduceRange, for attributes.

#include <array>
#include <span>
#include <string_view>

#include "quanta/ops/linear_dynamic.h"

namespace quanta::quantized {

inline std::span<const std::string_view> enumerators(ReduceRange) {
  static constexpr std::array<std::string_view, 2> kNames{"No", "Yes"};
  return kNames;
}

}  // namespace quanta::quantized
