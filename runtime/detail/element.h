#pragma once

// Private: one small struct for each plain dtype, so that conversions are written once.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "quanta/runtime/check.h"
#include "quanta/runtime/half.h"

namespace quanta::detail {

template <typename T>
struct NativeElement {
  using Storage = T;
  static double to_double(T value) { return static_cast<double>(value); }
  static T from_double(double value) {
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
  static double to_double(T value) { return static_cast<double>(kToFloat(value)); }
  static T from_double(double value) { return kFromFloat(static_cast<float>(value)); }
};

using Float16Element =
    SmallFloatElement<std::uint16_t, math::float16_to_float, math::float_to_float16>;
using BFloat16Element =
    SmallFloatElement<std::uint16_t, math::bfloat16_to_float, math::float_to_bfloat16>;
using Float8E4M3FNElement =
    SmallFloatElement<std::uint8_t, math::float8_e4m3fn_to_float, math::float_to_float8_e4m3fn>;
using Float8E5M2Element =
    SmallFloatElement<std::uint8_t, math::float8_e5m2_to_float, math::float_to_float8_e5m2>;

/// Calls `visitor` with the element struct of a plain dtype.
template <typename Visitor>
void visit_plain(DType dtype, std::string_view op, Visitor&& visitor) {
  switch (dtype) {
    case DType::Float32:
      return visitor(NativeElement<float>{});
    case DType::Float64:
      return visitor(NativeElement<double>{});
    case DType::Float16:
      return visitor(Float16Element{});
    case DType::BFloat16:
      return visitor(BFloat16Element{});
    case DType::Float8E4M3FN:
      return visitor(Float8E4M3FNElement{});
    case DType::Float8E5M2:
      return visitor(Float8E5M2Element{});
    case DType::UInt8:
      return visitor(NativeElement<std::uint8_t>{});
    case DType::Int8:
      return visitor(NativeElement<std::int8_t>{});
    case DType::Int16:
      return visitor(NativeElement<std::int16_t>{});
    case DType::UInt16:
      return visitor(NativeElement<std::uint16_t>{});
    case DType::Int32:
      return visitor(NativeElement<std::int32_t>{});
    case DType::Int64:
      return visitor(NativeElement<std::int64_t>{});
    case DType::Bool:
      return visitor(NativeElement<bool>{});
    case DType::QUInt8:
    case DType::QInt8:
    case DType::QInt32:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
      break;
  }
  throw UnsupportedError(fmt::format("{}: dtype: expected a plain dtype, got {}", op, dtype));
}

}  // namespace quanta::detail
