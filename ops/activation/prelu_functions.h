#pragma once

// Private: prelu of one element and what its gradients are, for the CPU and CUDA kernels.

#include <cstdint>

#include "quanta/runtime/host_device.h"

namespace quanta::activation {

template <typename T>
QUANTA_HOST_DEVICE T prelu_value(T x, T weight) {
  return x > T{0} ? x : weight * x;
}
/// What x gets of the result's gradient.
template <typename T>
QUANTA_HOST_DEVICE T prelu_slope(T gradient, T x, T weight) {
  return x > T{0} ? gradient : gradient * weight;
}
/// What the weight gets of it.
template <typename T>
QUANTA_HOST_DEVICE T prelu_weight_slope(T gradient, T x) {
  return x > T{0} ? T{0} : gradient * x;
}

}  // namespace quanta::activation
