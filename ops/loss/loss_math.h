#pragma once

// Private: the losses of single elements. The logarithms and exponentials of
// binary_cross_entropy_with_logits are the C library's on the CPU and CUDA's on a GPU, which may
// differ in a float's last bits; all else is the same everywhere.

#include <algorithm>
#include <cmath>
#include <string_view>

#include "quanta/runtime/host_device.h"

namespace quanta::loss {

// Each loss has the value of an element and its derivatives by input and target; `positive` is the
// weight of the positive answers.

struct SquaredError {
  static constexpr std::string_view kName = "mse_loss";
  template <typename T>
  QUANTA_HOST_DEVICE T value(T input, T target, T) const {
    return (input - target) * (input - target);
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_input(T input, T target, T) const {
    return T{2} * (input - target);
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_target(T input, T target, T) const {
    return T{2} * (target - input);
  }
};

struct AbsoluteError {
  static constexpr std::string_view kName = "l1_loss";
  template <typename T>
  QUANTA_HOST_DEVICE T value(T input, T target, T) const {
    return std::abs(input - target);
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_input(T input, T target, T) const {
    return static_cast<T>(input > target) - static_cast<T>(input < target);
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_target(T input, T target, T positive) const {
    return -by_input(input, target, positive);
  }
};

struct SmoothAbsoluteError {
  static constexpr std::string_view kName = "smooth_l1_loss";
  double beta = 1.0;

  template <typename T>
  QUANTA_HOST_DEVICE T value(T input, T target, T) const {
    const T width = static_cast<T>(beta);
    const T distance = std::abs(input - target);
    if (distance < width) return static_cast<T>(0.5) * distance * distance / width;
    return distance - static_cast<T>(0.5) * width;
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_input(T input, T target, T) const {
    const T width = static_cast<T>(beta);
    const T difference = input - target;
    if (std::abs(difference) < width) return difference / width;
    return static_cast<T>(difference > T{0}) - static_cast<T>(difference < T{0});
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_target(T input, T target, T positive) const {
    return -by_input(input, target, positive);
  }
};

struct BinaryCrossEntropy {
  static constexpr std::string_view kName = "binary_cross_entropy_with_logits";
  // log(1 + exp(-x)), without overflow.
  template <typename T>
  QUANTA_HOST_DEVICE static T softplus_of_negative(T x) {
    return std::log1p(std::exp(-std::abs(x))) + std::max(-x, T{0});
  }
  template <typename T>
  QUANTA_HOST_DEVICE T value(T input, T target, T positive) const {
    return (T{1} - target) * input +
           (T{1} + (positive - T{1}) * target) * softplus_of_negative(input);
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_input(T input, T target, T positive) const {
    const T share = T{1} / (T{1} + std::exp(-input));
    return (T{1} - target) * share - positive * target * (T{1} - share);
  }
  template <typename T>
  QUANTA_HOST_DEVICE T by_target(T input, T, T positive) const {
    return (positive - T{1}) * softplus_of_negative(input) - input;
  }
};

}  // namespace quanta::loss
