#pragma once

// Private: numbers that files hold with the most significant byte first.

#include <algorithm>
#include <cstddef>
#include <span>

namespace quanta::data::detail {

/// Turns every `width` bytes around.
inline void reverse_each(std::span<std::byte> bytes, std::size_t width) {
  for (std::size_t i = 0; width > 1 && i + width <= bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
}

}  // namespace quanta::data::detail
