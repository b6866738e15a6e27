#pragma once

// Private: division and rounding upwards.

namespace quanta {

/// The quotient of the integers a >= 0 and b > 0, rounded up: how many parts of b hold a. Of any two:
/// b may be what a caller asks for.
template <typename A, typename B>
constexpr auto ceil_div(A a, B b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// The smallest multiple of b > 0 that is not below a >= 0.
template <typename A, typename B>
constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

}  // namespace quanta
