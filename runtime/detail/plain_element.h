#pragma once

// Private: one small struct for each plain dtype, so that conversions are written once, for the CPU
// and for CUDA.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "quanta/runtime/half.h"
#include "quanta/runtime/host_device.h"

namespace quanta::detail {

template <typename T>
struct NativeElement {
  using Storage = T;
  QUANTA_HOST_DEVICE static double to_double(T value) { return static_cast<double>(value); }
  QUANTA_HOST_DEVICE static T from_double(double value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value != 0.0;
    } else if constexpr (std::is_integral_v<T>) {
      // Saturates; NaN becomes 0. The comparison with max() + 1 is exact in double.
      constexpr double kMin = static_cast<double>(std::numeric_limits<T>::min());
      constexpr T kHalf = std::numeric_limits<T>::max() / 2 + 1;
      constexpr double kEnd = 2.0 * static_cast<double>(kHalf);
      if (!(value >= kMin)) return value < kMin ? std::numeric_limits<T>::min() : T{0};
      if (value >= kEnd) return std::numeric_limits<T>::max();
      return static_cast<T>(value);
    } else {
      return static_cast<T>(value);
    }
  }
};

template <typename T, float (*kToFloat)(T), T (*kFromFloat)(float)>
struct SmallFloatElement {
  using Storage = T;
  QUANTA_HOST_DEVICE static double to_double(T value) {
    return static_cast<double>(kToFloat(value));
  }
  QUANTA_HOST_DEVICE static T from_double(double value) {
    return kFromFloat(static_cast<float>(value));
  }
};

using Float16Element =
    SmallFloatElement<std::uint16_t, math::float16_to_float, math::float_to_float16>;
using BFloat16Element =
    SmallFloatElement<std::uint16_t, math::bfloat16_to_float, math::float_to_bfloat16>;
using Float8E4M3FNElement =
    SmallFloatElement<std::uint8_t, math::float8_e4m3fn_to_float, math::float_to_float8_e4m3fn>;
using Float8E5M2Element =
    SmallFloatElement<std::uint8_t, math::float8_e5m2_to_float, math::float_to_float8_e5m2>;

}  // namespace quanta::detail
