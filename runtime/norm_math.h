#pragma once

#include <cmath>
#include <cstdint>

#include "quanta/runtime/host_device.h"

// What the statistics of normalizations come to, once for CPU and CUDA kernels. Nothing throws, and
// many threads may call it at once.

namespace quanta::math {

QUANTA_HOST_DEVICE inline float square_root(float x) { return sqrtf(x); }
QUANTA_HOST_DEVICE inline double square_root(double x) { return sqrt(x); }

/// A group's values become (x - center) * inv_std.
struct NormMoments {
  float center = 0.0F;
  float inv_std = 0.0F;
};

/// Of `count` elements with this sum and sum of squares. For codes, `scale` is that of the input:
/// the variance is that of real numbers, and inv_std takes differences of codes.
QUANTA_HOST_DEVICE inline NormMoments norm_moments(double sum, double squares, std::int64_t count,
                                                   double scale, double eps) {
  const auto n = static_cast<double>(count);
  const double mean = sum / n;
  const double difference = squares / n - mean * mean;
  const double variance = difference < 0.0 ? 0.0 : difference;  // NaN stays
  return {static_cast<float>(mean),
          static_cast<float>(scale / square_root(variance * scale * scale + eps))};
}

/// Batch norm by given statistics, as torch rounds it: x * scale + shift.
template <typename T>
struct BatchNormLine {
  T scale;
  T shift;
};

template <typename T>
QUANTA_HOST_DEVICE inline BatchNormLine<T> batch_norm_line(T mean, T var, T weight, T bias,
                                                           double eps) {
  const T scale = weight * (T{1} / square_root(var + static_cast<T>(eps)));
  return {scale, bias - mean * scale};
}

/// The same between codes, (code - zero point) * scale + shift in steps of the result: torch's mix
/// of float and double steps, which decides the codes at ties.
QUANTA_HOST_DEVICE inline BatchNormLine<float> batch_norm_line_of_codes(float mean, float var,
                                                                        float weight, float bias,
                                                                        double eps, double scale_in,
                                                                        double scale_out) {
  const auto inv_sigma =
      static_cast<float>(1.0 / static_cast<double>(square_root(var + static_cast<float>(eps))));
  const float slope = inv_sigma * weight;
  const float offset = bias - mean * inv_sigma * weight;
  return {static_cast<float>(static_cast<double>(slope) * (scale_in / scale_out)),
          static_cast<float>(static_cast<double>(offset) / scale_out)};
}

}  // namespace quanta::math
