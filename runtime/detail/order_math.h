#pragma once

// Private: numbers and codes as unsigned numbers of the same order, for sorting.

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "quanta/runtime/host_device.h"

namespace quanta::math {

/// An unsigned number, as wide as T, that orders like the value: of floats the bits with the sign
/// turned over, one number for both zeros, the largest for every NaN.
template <typename T>
QUANTA_HOST_DEVICE inline auto order_key(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
    if (value != value) return static_cast<Bits>(~Bits{0});
    const auto bits = std::bit_cast<Bits>(value == T{0} ? T{0} : value);
    return static_cast<Bits>((bits & kSign) != 0 ? ~bits : bits | kSign);
  } else {
    using Bits = std::make_unsigned_t<T>;
    constexpr auto kSign = static_cast<Bits>(std::numeric_limits<T>::min());
    return static_cast<Bits>(static_cast<Bits>(value) ^ kSign);
  }
}

}  // namespace quanta::math
