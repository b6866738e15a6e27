#pragma once

#include <cmath>

#include "quanta/runtime/host_device.h"

// The activation functions of one number, float or double, once for the float operations, the tables
// of the quantized ones and CUDA kernels. Written with torch's order of operations. exp, tanh and
// their like are the library's: their last bits are those of the machine's, and on a CUDA device
// those of CUDA's. Nothing throws, and many threads may call it at once.

namespace quanta::math {

template <typename T>
QUANTA_HOST_DEVICE inline T hard_gate(T x) {
  const T shifted = x + T{3};
  const T at_least = shifted < T{0} ? T{0} : shifted;
  return at_least > T{6} ? T{6} : at_least;
}
template <typename T>
QUANTA_HOST_DEVICE inline T hardsigmoid(T x) {
  return hard_gate(x) / T{6};
}
template <typename T>
QUANTA_HOST_DEVICE inline T hardswish(T x) {
  return x * hard_gate(x) / T{6};
}

template <typename T>
QUANTA_HOST_DEVICE inline T leaky_relu(T x, T slope) {
  return x > T{0} ? x : x * slope;
}
template <typename T>
QUANTA_HOST_DEVICE inline T threshold(T x, T limit, T value) {
  return x <= limit ? value : x;
}
template <typename T>
QUANTA_HOST_DEVICE inline bool is_shrunk(T x, T lambd) {
  return x >= -lambd && x <= lambd;
}
template <typename T>
QUANTA_HOST_DEVICE inline T hardshrink(T x, T lambd) {
  return is_shrunk(x, lambd) ? T{0} : x;
}

template <typename T>
QUANTA_HOST_DEVICE inline T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}
template <typename T>
QUANTA_HOST_DEVICE inline T silu(T x) {
  return x / (T{1} + std::exp(-x));
}
template <typename T>
QUANTA_HOST_DEVICE inline T logsigmoid(T x) {
  const T low = x >= T{0} ? T{0} : x;
  return low - std::log1p(std::exp(-std::fabs(x)));
}
template <typename T>
QUANTA_HOST_DEVICE inline T softplus(T x, T beta, T limit) {
  const T scaled = x * beta;
  if (scaled > limit) return x;
  return std::log1p(std::exp(scaled)) / beta;
}
template <typename T>
QUANTA_HOST_DEVICE inline T mish(T x) {
  return x * std::tanh(std::log1p(std::exp(x)));
}
template <typename T>
QUANTA_HOST_DEVICE inline T softsign(T x) {
  return x / (T{1} + std::fabs(x));
}
template <typename T>
QUANTA_HOST_DEVICE inline T elu(T x, T alpha, T scale, T input_scale) {
  return x >= T{0} ? x * scale : std::expm1(x * input_scale) * alpha * scale;
}

/// Of doubles and in tables; gelu of floats is that of gelu_math.h.
template <typename T>
QUANTA_HOST_DEVICE inline T gelu(T x) {
  constexpr auto kSqrtHalf = static_cast<T>(0.70710678118654752440);
  return x * static_cast<T>(0.5) * (T{1} + std::erf(x * kSqrtHalf));
}
template <typename T>
QUANTA_HOST_DEVICE inline T gelu_tanh(T x) {
  constexpr auto kSqrtTwoOverPi = static_cast<T>(0.79788456080286535588);
  const T inner = kSqrtTwoOverPi * (x + static_cast<T>(0.044715) * (x * x * x));
  return static_cast<T>(0.5) * x * (T{1} + std::tanh(inner));
}

}  // namespace quanta::math
