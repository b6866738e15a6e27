#pragma once

// Private: division and rounding upwards.

namespace quanta {

/// The quotient of a >= 0 and b > 0, rounded up: how many parts of b hold a.
template <typename A, typename B>
constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

/// The smallest multiple of b > 0 that is not below a >= 0.
template <typename A, typename B>
constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

}  // namespace quanta
