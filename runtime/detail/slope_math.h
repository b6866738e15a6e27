#pragma once

#include <cmath>

#include "quanta/runtime/detail/activation_math.h"
#include "quanta/runtime/host_device.h"

// Slopes of functions of one number, float or double: the gradient of the argument x (or of the
// result y, where that is cheaper) from that of the result, once for the CPU and CUDA kernels. exp,
// tanh and their like are the library's, as in activation_math.h. Nothing throws, and many threads
// may call it at once.

namespace quanta::math {

template <typename T>
QUANTA_HOST_DEVICE inline T threshold_slope(T gradient, T x, T limit) {
  return x <= limit ? T{0} : gradient;
}
template <typename T>
QUANTA_HOST_DEVICE inline T leaky_relu_slope(T gradient, T x, T slope) {
  return x > T{0} ? gradient : gradient * slope;
}
template <typename T>
QUANTA_HOST_DEVICE inline T hardsigmoid_slope(T gradient, T x) {
  return x <= T{-3} || x >= T{3} ? T{0} : gradient * static_cast<T>(1.0 / 6.0);
}
template <typename T>
QUANTA_HOST_DEVICE inline T hardswish_slope(T gradient, T x) {
  if (x <= T{-3}) return T{0};
  return x < T{3} ? gradient * (x / T{3} + static_cast<T>(0.5)) : gradient;
}
template <typename T>
QUANTA_HOST_DEVICE inline T hardshrink_slope(T gradient, T x, T lambd) {
  return is_shrunk(x, lambd) ? T{0} : gradient;
}
template <typename T>
QUANTA_HOST_DEVICE inline T sigmoid_slope(T gradient, T y) {
  return gradient * (T{1} - y) * y;
}
template <typename T>
QUANTA_HOST_DEVICE inline T tanh_slope(T gradient, T y) {
  return gradient * (T{1} - y * y);
}
template <typename T>
QUANTA_HOST_DEVICE inline T gelu_slope(T gradient, T x) {
  constexpr T kHalf = static_cast<T>(0.5);
  constexpr auto kSqrtHalf = static_cast<T>(0.70710678118654752440);
  constexpr auto kDensity = static_cast<T>(0.39894228040143267794);  // 1 / sqrt(2 pi)
  const T share = kHalf * (T{1} + std::erf(x * kSqrtHalf));
  return gradient * (share + x * kDensity * std::exp(-kHalf * x * x));
}
template <typename T>
QUANTA_HOST_DEVICE inline T gelu_tanh_slope(T gradient, T x) {
  constexpr T kHalf = static_cast<T>(0.5);
  constexpr auto kSqrtTwoOverPi = static_cast<T>(0.79788456080286535588);
  constexpr auto kCubic = static_cast<T>(0.044715);
  const T t = std::tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x));
  const T inner = kSqrtTwoOverPi * (T{1} + T{3} * kCubic * x * x);
  return gradient * kHalf * (T{1} + t + x * (T{1} - t * t) * inner);
}
template <typename T>
QUANTA_HOST_DEVICE inline T silu_slope(T gradient, T x) {
  const T share = sigmoid(x);
  return gradient * share * (T{1} + x * (T{1} - share));
}
/// Of elu, celu and selu. `slope`: alpha * scale * input_scale.
template <typename T>
QUANTA_HOST_DEVICE inline T elu_slope(T gradient, T x, T slope, T scale, T input_scale) {
  if (x > T{0}) return gradient * scale;
  return gradient * slope * std::exp(x * input_scale);
}
template <typename T>
QUANTA_HOST_DEVICE inline T softplus_slope(T gradient, T x, T beta, T limit) {
  const T scaled = x * beta;
  return scaled > limit ? gradient : gradient * sigmoid(scaled);
}
template <typename T>
QUANTA_HOST_DEVICE inline T mish_slope(T gradient, T x) {
  const T share = sigmoid(x);
  const T t = std::tanh(std::log1p(std::exp(x)));
  return gradient * (t + x * share * (T{1} - t * t));
}
template <typename T>
QUANTA_HOST_DEVICE inline T logsigmoid_slope(T gradient, T x) {
  return gradient * sigmoid(-x);
}
template <typename T>
QUANTA_HOST_DEVICE inline T softsign_slope(T gradient, T x) {
  const T width = T{1} + std::fabs(x);
  return gradient / (width * width);
}

template <typename T>
QUANTA_HOST_DEVICE inline T reciprocal_slope(T gradient, T y) {
  return -gradient * y * y;
}
template <typename T>
QUANTA_HOST_DEVICE inline T sqrt_slope(T gradient, T y) {
  return gradient / (T{2} * y);
}
template <typename T>
QUANTA_HOST_DEVICE inline T exp_slope(T gradient, T y) {
  return gradient * y;
}
template <typename T>
QUANTA_HOST_DEVICE inline T erf_slope(T gradient, T x) {
  constexpr auto kFactor = static_cast<T>(1.12837916709551257390);  // 2 / sqrt(pi)
  return gradient * kFactor * std::exp(-x * x);
}
/// Of floor, ceil and round, whose slope is 0 wherever they have one.
template <typename T>
QUANTA_HOST_DEVICE inline T step_slope(T gradient) {
  return gradient * T{0};
}

// The derivatives of functions that are calculated in double.
QUANTA_HOST_DEVICE inline double log_derivative(double x) { return 1.0 / x; }
QUANTA_HOST_DEVICE inline double sin_derivative(double x) { return std::cos(x); }
QUANTA_HOST_DEVICE inline double cos_derivative(double x) { return -std::sin(x); }
QUANTA_HOST_DEVICE inline double tan_derivative(double x) {
  return 1.0 + std::tan(x) * std::tan(x);
}
QUANTA_HOST_DEVICE inline double asin_derivative(double x) { return 1.0 / std::sqrt(1.0 - x * x); }
QUANTA_HOST_DEVICE inline double acos_derivative(double x) { return -1.0 / std::sqrt(1.0 - x * x); }
QUANTA_HOST_DEVICE inline double atan_derivative(double x) { return 1.0 / (1.0 + x * x); }
QUANTA_HOST_DEVICE inline double sinh_derivative(double x) { return std::cosh(x); }
QUANTA_HOST_DEVICE inline double cosh_derivative(double x) { return std::sinh(x); }
QUANTA_HOST_DEVICE inline double asinh_derivative(double x) { return 1.0 / std::sqrt(x * x + 1.0); }
QUANTA_HOST_DEVICE inline double acosh_derivative(double x) { return 1.0 / std::sqrt(x * x - 1.0); }
QUANTA_HOST_DEVICE inline double atanh_derivative(double x) { return 1.0 / (1.0 - x * x); }

}  // namespace quanta::math
