#pragma once

// Private: what one step of an optimizer does to one element, on every device.

#include <cmath>

#include "quanta/runtime/host_device.h"

namespace quanta::optim {

/// SGD's. `taken` is what the buffer takes of the change.
template <typename T>
struct SGDStep {
  T lr = 0;
  T weight_decay = 0;
  T momentum = 0;
  T taken = 1;
  bool nesterov = false;

  /// `buffer` may be null: no momentum.
  QUANTA_HOST_DEVICE void operator()(T& parameter, T gradient, T* buffer) const {
    T change = gradient + weight_decay * parameter;
    if (buffer != nullptr) {
      *buffer = momentum * *buffer + taken * change;
      change = nesterov ? change + momentum * *buffer : *buffer;
    }
    parameter -= lr * change;
  }
};

/// Adam's and AdamW's: one of `shrink` (1) and `decay` (0) does nothing.
template <typename T>
struct AdamStep {
  T rate = 0;
  T root_correction = 1;
  T eps = 0;
  T weight1 = 0;
  T beta2 = 0;
  T weight2 = 0;
  T shrink = 1;
  T decay = 0;

  /// `largest` may be null: no amsgrad.
  QUANTA_HOST_DEVICE void operator()(T& parameter, T gradient, T& mean, T& square,
                                     T* largest) const {
    const T value = parameter * shrink;
    const T slope = gradient + decay * value;
    mean += weight1 * (slope - mean);
    square = beta2 * square + weight2 * slope * slope;
    T second = square;
    if (largest != nullptr) second = *largest = *largest < second ? second : *largest;
    parameter = value - rate * (mean / (std::sqrt(second) / root_correction + eps));
  }
};

/// What a gradient's element adds to the power of the norm. Orders but 2 go through pow, which is
/// the C library's on the CPU and CUDA's on a GPU.
QUANTA_HOST_DEVICE inline double norm_term(double gradient, double norm_type) {
  const double size = std::fabs(gradient);
  return norm_type == 2.0 ? size * size : std::pow(size, norm_type);
}
/// The larger one; NaN is kept.
QUANTA_HOST_DEVICE inline double larger_size(double left, double right) {
  return right > left || right != right ? right : left;
}

}  // namespace quanta::optim
