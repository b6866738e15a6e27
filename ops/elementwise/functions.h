#pragma once

// Private: functions of one or two numbers, for the CPU's loops and CUDA kernels. Each says which
// dtypes it takes and what becomes of the numbers. Integers wrap around.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "quanta/runtime/host_device.h"

namespace quanta::elementwise {

/// Which dtypes an operation takes.
enum class Numbers : std::uint8_t { FloatsAndIntegers, Integers, IntegersAndBool, All };

/// An unsigned type in which sums and products of T wrap around; int would not hold those of
/// uint16.
template <typename T>
using Bits = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

template <typename T>
QUANTA_HOST_DEVICE constexpr Bits<T> bits_of(T value) {
  return static_cast<Bits<T>>(value);
}

/// The low bits of an integer, with the sign that they have then; of Bool whether it is not 0.
template <typename T>
QUANTA_HOST_DEVICE constexpr T low_bits(std::int64_t value, std::int64_t bits) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (sizeof(T) != 1) {
    return static_cast<T>(static_cast<std::uint64_t>(value));
  } else {
    const auto whole = static_cast<T>(static_cast<std::uint64_t>(value));
    if (bits == 8) return whole;
    const auto shift = static_cast<int>(8 - bits);
    const auto raised = static_cast<T>(static_cast<unsigned>(whole) << shift);
    return static_cast<T>(raised >> shift);
  }
}

/// x < 0, which nvcc would call pointless for unsigned numbers.
template <typename T>
QUANTA_HOST_DEVICE constexpr bool is_negative(T x) {
  if constexpr (std::is_unsigned_v<T>) {
    return false;
  } else {
    return x < T{0};
  }
}

template <typename T>
QUANTA_HOST_DEVICE inline T divide(T lhs, T rhs) {
  if (rhs == T{0}) return T{0};
  // The only quotient that does not fit: it wraps around to itself.
  if (std::is_signed_v<T> && rhs == static_cast<T>(-1)) {
    return static_cast<T>(Bits<T>{0} - bits_of(lhs));
  }
  return static_cast<T>(lhs / rhs);
}

template <typename T>
QUANTA_HOST_DEVICE inline T rest_of(T lhs, T rhs) {
  if (rhs == T{0} || (std::is_signed_v<T> && rhs == static_cast<T>(-1))) return T{0};
  return static_cast<T>(lhs % rhs);
}

template <typename T>
QUANTA_HOST_DEVICE inline T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < T{0}) {
      if (base == T{1}) return T{1};
      if (base != static_cast<T>(-1)) return T{0};
      return exponent % 2 == 0 ? T{1} : static_cast<T>(-1);
    }
  }
  Bits<T> result = 1;
  Bits<T> square = bits_of(base);
  for (auto rest = bits_of(exponent); rest != 0; rest >>= 1U) {
    if ((rest & 1U) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

template <typename T>
QUANTA_HOST_DEVICE inline T shift_left(T value, T by) {
  constexpr int kBits = std::numeric_limits<Bits<T>>::digits;
  if (is_negative(by) || static_cast<std::uint64_t>(by) >= kBits) return T{0};
  return static_cast<T>(bits_of(value) << static_cast<int>(by));
}

template <typename T>
QUANTA_HOST_DEVICE inline T shift_right(T value, T by) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  if (is_negative(by) || static_cast<std::uint64_t>(by) >= kBits) {
    return is_negative(value) ? static_cast<T>(-1) : T{0};
  }
  return static_cast<T>(value >> static_cast<int>(by));
}

// Of two numbers.

struct Pow {
  static constexpr std::string_view kName = "pow";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T square(T x) {
    return x * x;
  }
  template <typename T>
  QUANTA_HOST_DEVICE static T cube(T x) {
    const auto wide = static_cast<double>(x);
    return static_cast<T>(wide * wide * wide);
  }
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      // The powers of layer norms and gelus. Both give what std::pow gives but for the sign of 0.
      if (rhs == T{2}) return square(lhs);
      if (rhs == T{3}) return cube(lhs);
      // In double, so that every variant of the library's code gives the same float.
      return static_cast<T>(std::pow(static_cast<double>(lhs), static_cast<double>(rhs)));
    } else {
      return integer_power(lhs, rhs);
    }
  }
};

struct Maximum {
  static constexpr std::string_view kName = "maximum";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      if (lhs != lhs) return lhs;
      return lhs > rhs ? lhs : rhs;  // a NaN on the right stays
    } else {
      return lhs < rhs ? rhs : lhs;
    }
  }
};

struct Minimum {
  static constexpr std::string_view kName = "minimum";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      if (lhs != lhs) return lhs;
      return lhs < rhs ? lhs : rhs;
    } else {
      return rhs < lhs ? rhs : lhs;
    }
  }
};

struct Fmod {
  static constexpr std::string_view kName = "fmod";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(lhs, rhs);
    } else {
      return rest_of(lhs, rhs);
    }
  }
};

struct Remainder {
  static constexpr std::string_view kName = "remainder";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    const T rest = Fmod::value(lhs, rhs);
    const bool other_sign = rest != T{0} && is_negative(rest) != is_negative(rhs);
    return other_sign ? static_cast<T>(rest + rhs) : rest;
  }
};

struct DivTrunc {
  static constexpr std::string_view kName = "div_trunc";
  static constexpr Numbers kNumbers = Numbers::Integers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    return divide(lhs, rhs);
  }
};

struct BitwiseAnd {
  static constexpr std::string_view kName = "bitwise_and";
  static constexpr Numbers kNumbers = Numbers::IntegersAndBool;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    return static_cast<T>(lhs & rhs);
  }
};
struct BitwiseOr {
  static constexpr std::string_view kName = "bitwise_or";
  static constexpr Numbers kNumbers = Numbers::IntegersAndBool;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    return static_cast<T>(lhs | rhs);
  }
};
struct BitwiseXor {
  static constexpr std::string_view kName = "bitwise_xor";
  static constexpr Numbers kNumbers = Numbers::IntegersAndBool;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    return static_cast<T>(lhs ^ rhs);
  }
};
struct LeftShift {
  static constexpr std::string_view kName = "bitwise_left_shift";
  static constexpr Numbers kNumbers = Numbers::Integers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    return shift_left(lhs, rhs);
  }
};
struct RightShift {
  static constexpr std::string_view kName = "bitwise_right_shift";
  static constexpr Numbers kNumbers = Numbers::Integers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T lhs, T rhs) {
    return shift_right(lhs, rhs);
  }
};

// Of one number.

struct Neg {
  static constexpr std::string_view kName = "neg";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T v) {
    if constexpr (std::is_floating_point_v<T>) {
      return -v;
    } else {
      return static_cast<T>(Bits<T>{0} - bits_of(v));
    }
  }
};

struct Abs {
  static constexpr std::string_view kName = "abs";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T v) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(v);
    } else {
      return is_negative(v) ? Neg::value(v) : v;
    }
  }
};

struct Sign {
  static constexpr std::string_view kName = "sign";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T v) {
    if constexpr (std::is_floating_point_v<T>) {
      if (v != v) return v;
    }
    return static_cast<T>(static_cast<int>(v > T{0}) - static_cast<int>(is_negative(v)));
  }
};

struct Not {
  static constexpr std::string_view kName = "bitwise_not";
  static constexpr Numbers kNumbers = Numbers::IntegersAndBool;
  template <typename T>
  QUANTA_HOST_DEVICE static T value(T v) {
    if constexpr (std::is_floating_point_v<T>) {
      return v;  // not reached: floats are refused
    } else {
      return static_cast<T>(~bits_of(v));
    }
  }
};

}  // namespace quanta::elementwise
