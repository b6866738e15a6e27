#pragma once

#include <cmath>
#include <cstdint>

#include "quanta/runtime/host_device.h"

// What the statistics of normalizations come to, once for CPU and CUDA kernels. Nothing throws, and
// many threads may call it at once.

namespace quanta::math {

QUANTA_HOST_DEVICE inline float square_root(float x) { return sqrtf(x); }
QUANTA_HOST_DEVICE inline double square_root(double x) { return ::sqrt(x); }

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

// Batch norm by the batch's own statistics ----------------------------------------------------

/// The variance is divided by the number of elements.
struct MeanAndVariance {
  double mean = 0.0;
  double variance = 0.0;
};

/// Of `count` elements with this sum and sum of squares; both 0 where there are none.
QUANTA_HOST_DEVICE inline MeanAndVariance mean_and_variance(double sum, double squares,
                                                            std::int64_t count) {
  if (count == 0) return {};
  const auto n = static_cast<double>(count);
  const double mean = sum / n;
  const double variance = squares / n - mean * mean;
  return {mean, variance < 0.0 ? 0.0 : variance};  // NaN stays
}

/// What x - mean is multiplied by when x / divisor + shift is normalized in the place of x, whose
/// variance is given:
///
///   (x / d - mean / d) / sqrt(var / d^2 + eps) = (x - mean) * sign(d) / sqrt(var + eps * d^2)
///
/// 0 for a divisor of 0.
QUANTA_HOST_DEVICE inline double inverse_std_of_quotient(double variance, double divisor,
                                                         double eps) {
  if (divisor == 0.0) return 0.0;
  return (divisor < 0.0 ? -1.0 : 1.0) / square_root(variance + eps * divisor * divisor);
}

/// What the running statistics move towards: those of x / divisor + shift, with the estimate of the
/// variance that has no bias. `running` where the divisor is 0.
QUANTA_HOST_DEVICE inline MeanAndVariance statistics_of_quotient(MeanAndVariance of_x,
                                                                 std::int64_t count, double divisor,
                                                                 double shift,
                                                                 MeanAndVariance running) {
  if (divisor == 0.0) return running;
  const double factor =
      count == 0 ? 1.0 : static_cast<double>(count) / static_cast<double>(count - 1);
  return {of_x.mean / divisor + shift, of_x.variance * factor / (divisor * divisor)};
}

/// running + momentum * (now - running), in torch's order.
template <typename T>
QUANTA_HOST_DEVICE inline T moved_statistic(T running, double now, double momentum) {
  return static_cast<T>((1.0 - momentum) * static_cast<double>(running) + momentum * now);
}

/// The gradient of a channel's elements: a * gradient + b * (x - mean) + c.
struct BatchNormSlope {
  double a = 0.0;
  double b = 0.0;
  double c = 0.0;
};

/// `sum` and `products` are the channel's sums of gradient and of gradient * (x - mean).
QUANTA_HOST_DEVICE inline BatchNormSlope batch_norm_slope(double sum, double products,
                                                          std::int64_t count, double inv_std,
                                                          double weight) {
  const auto n = static_cast<double>(count);
  const double a = weight * inv_std;
  return {a, -a * inv_std * inv_std * products / n, -a * sum / n};
}

/// The gradient of the divisor, which only scales eps: (x - mean) * sign(d) / sqrt(var + eps * d^2)
/// has the derivative -eps * d * inv_std^2 times itself.
QUANTA_HOST_DEVICE inline double divisor_slope(double divisor, double eps, double inv_std,
                                               double weight, double products) {
  return -eps * divisor * inv_std * inv_std * inv_std * weight * products;
}

}  // namespace quanta::math
