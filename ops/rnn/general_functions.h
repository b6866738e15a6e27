#pragma once

// Private: the gate functions of general recurrent layers, for the CPU and CUDA kernels.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "quanta/runtime/detail/gate_math.h"
#include "quanta/runtime/host_device.h"

namespace quanta::recurrent {

/// GateFunction, in its order, without the header that kernels do not include.
enum class GateKind : std::uint8_t {
  Sigmoid,
  Tanh,
  Relu,
  Affine,
  LeakyRelu,
  ThresholdedRelu,
  ScaledTanh,
  HardSigmoid,
  Elu,
  Softsign,
  Softplus,
};

template <typename T>
QUANTA_HOST_DEVICE T tanh_of(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return tanhf(x);
  } else {
    return ::tanh(x);
  }
}
template <typename T>
QUANTA_HOST_DEVICE T exp_of(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return ::exp(x);
  }
}
template <typename T>
QUANTA_HOST_DEVICE T expm1_of(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return expm1f(x);
  } else {
    return ::expm1(x);
  }
}
template <typename T>
QUANTA_HOST_DEVICE T log1p_of(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return log1pf(x);
  } else {
    return ::log1p(x);
  }
}

/// Bounds that are numbers; NaN stays.
template <typename T>
QUANTA_HOST_DEVICE T limited(T x, T low, T high) {
  if (x < low) return low;
  return high < x ? high : x;
}

/// A gate function with its numbers.
template <typename T>
struct GateCall {
  GateKind kind = GateKind::Sigmoid;
  T alpha{};
  T beta{};
  T clip = HUGE_VALF;  // infinity: none

  QUANTA_HOST_DEVICE T clipped(T x) const { return clip < HUGE_VALF ? limited(x, -clip, clip) : x; }

  /// Of what was clipped.
  QUANTA_HOST_DEVICE T value(T x) const {
    const T size = x < T{0} ? -x : x;
    switch (kind) {
      case GateKind::Sigmoid:
        if constexpr (std::is_same_v<T, float>) return math::value_of(math::gate_sigmoid(x));
        return T{1} / (T{1} + exp_of(-x));
      case GateKind::Tanh:
        if constexpr (std::is_same_v<T, float>) return math::value_of(math::gate_tanh(x));
        return tanh_of(x);
      case GateKind::Relu:
        return x < T{0} ? T{0} : x;
      case GateKind::Affine:
        return alpha * x + beta;
      case GateKind::LeakyRelu:
        return x >= T{0} ? x : alpha * x;
      case GateKind::ThresholdedRelu:
        return x > alpha ? x : T{0};
      case GateKind::ScaledTanh:
        return alpha * tanh_of(beta * x);
      case GateKind::HardSigmoid:
        return limited(alpha * x + beta, T{0}, T{1});
      case GateKind::Elu:
        return x >= T{0} ? x : alpha * expm1_of(x);
      case GateKind::Softsign:
        return x / (T{1} + size);
      case GateKind::Softplus:
        // log(1 + e^x) without an overflow.
        return (x < T{0} ? T{0} : x) + log1p_of(exp_of(-size));
    }
    return x;
  }

  QUANTA_HOST_DEVICE T operator()(T x) const { return value(clipped(x)); }
};

}  // namespace quanta::recurrent
