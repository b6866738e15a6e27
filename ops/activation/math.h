#pragma once

#include <cmath>

// Private: the activation functions of one number, shared by the float ops and the tables of the
// quantized ones. Written with torch's order of operations. Constants of template functions for
// float and double, so that they can be handed on by name.

namespace quanta::cpu {

// NOLINTBEGIN(readability-identifier-naming): they are called like functions.
inline constexpr auto hard_gate = [](auto x) {
  using T = decltype(x);
  const T shifted = x + T{3};
  const T at_least = shifted < T{0} ? T{0} : shifted;
  return at_least > T{6} ? T{6} : at_least;
};
inline constexpr auto hardsigmoid = [](auto x) { return hard_gate(x) / decltype(x){6}; };
inline constexpr auto hardswish = [](auto x) { return x * hard_gate(x) / decltype(x){6}; };
inline constexpr auto sigmoid = [](auto x) {
  return decltype(x){1} / (decltype(x){1} + std::exp(-x));
};
inline constexpr auto silu = [](auto x) { return x / (decltype(x){1} + std::exp(-x)); };
inline constexpr auto leaky_relu = [](auto x, auto slope) {
  return x > decltype(x){0} ? x : x * slope;
};
inline constexpr auto threshold = [](auto x, auto limit, auto value) {
  return x <= limit ? value : x;
};
inline constexpr auto elu = [](auto x, auto alpha, auto scale, auto input_scale) {
  return x >= decltype(x){0} ? x * scale : std::expm1(x * input_scale) * alpha * scale;
};
inline constexpr auto gelu = [](auto x) {
  using T = decltype(x);
  constexpr auto kSqrtHalf = static_cast<T>(0.70710678118654752440);
  return x * static_cast<T>(0.5) * (T{1} + std::erf(x * kSqrtHalf));
};
inline constexpr auto gelu_tanh = [](auto x) {
  using T = decltype(x);
  constexpr auto kSqrtTwoOverPi = static_cast<T>(0.79788456080286535588);
  const T inner = kSqrtTwoOverPi * (x + static_cast<T>(0.044715) * (x * x * x));
  return static_cast<T>(0.5) * x * (T{1} + std::tanh(inner));
};
// NOLINTEND(readability-identifier-naming)

}  // namespace quanta::cpu
