#pragma once

// Private: gradients of softmax and log_softmax, for the CPU and CUDA kernels.

#include <cmath>

#include "quanta/runtime/host_device.h"

namespace quanta::activation {

QUANTA_HOST_DEVICE inline float exp_of(float x) { return expf(x); }
QUANTA_HOST_DEVICE inline double exp_of(double x) { return ::exp(x); }

/// A line's sum has a term for each element, and each element's slope takes the sum.
struct SoftmaxSlope {
  template <typename T>
  QUANTA_HOST_DEVICE static double term(T gradient, T y) {
    return static_cast<double>(gradient) * static_cast<double>(y);
  }
  template <typename T>
  QUANTA_HOST_DEVICE static T slope(T gradient, T y, T sum) {
    return y * (gradient - sum);
  }
};

struct LogSoftmaxSlope {
  template <typename T>
  QUANTA_HOST_DEVICE static double term(T gradient, T /*y*/) {
    return static_cast<double>(gradient);
  }
  template <typename T>
  QUANTA_HOST_DEVICE static T slope(T gradient, T y, T sum) {
    return gradient - exp_of(y) * sum;
  }
};

}  // namespace quanta::activation
