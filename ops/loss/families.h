#pragma once

// Private: what the files of this family share.

#include <array>
#include <span>
#include <string_view>

#include "quanta/ops/loss.h"
#include "quanta/runtime/catalogue.h"

namespace quanta {

inline std::span<const std::string_view> enumerators(Reduction) {
  static constexpr std::array<std::string_view, 3> kNames{"none", "mean", "sum"};
  return kNames;
}

namespace loss {

void add_class_losses(Catalogue& catalogue);

}  // namespace loss
}  // namespace quanta
