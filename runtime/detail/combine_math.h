#pragma once

// Private: what becomes of an element and of one that is put on it.

#include <cstdint>
#include <type_traits>

#include "quanta/runtime/host_device.h"

namespace quanta::math {

enum class Combine : std::uint8_t { Last, Add, Multiply, Minimum, Maximum };

/// Integers wrap around; NaN is the least and the largest number.
template <typename T>
QUANTA_HOST_DEVICE inline T combine(Combine how, T old, T update) {
  switch (how) {
    case Combine::Add:
    case Combine::Multiply:
      if constexpr (std::is_floating_point_v<T>) {
        return how == Combine::Add ? old + update : old * update;
      } else {
        // The product of small integers is calculated in an int otherwise.
        const auto a = static_cast<std::uint64_t>(old);
        const auto b = static_cast<std::uint64_t>(update);
        return static_cast<T>(how == Combine::Add ? a + b : a * b);
      }
    case Combine::Minimum:
      if (old != old) return old;
      return update < old || update != update ? update : old;
    case Combine::Maximum:
      if (old != old) return old;
      return update > old || update != update ? update : old;
    case Combine::Last:
      break;
  }
  return update;
}

}  // namespace quanta::math
