#pragma once

// Private: gradients in vectors, over contiguous rows of floats. The results are the same on every
// instruction set.

#include <cstdint>

namespace quanta::cpu {

/// dst[i] = x[i] <= low or x[i] >= high ? 0 : gradient[i] * factor.
struct Gate {
  float low;
  float high;
  float factor;
};
void gate_gradient(const float* gradient, const float* x, float* dst, std::int64_t count,
                   const Gate& gate);

/// dst[i] = x[i] <= -3 ? 0 : x[i] < 3 ? gradient[i] * (x[i] / 3 + 1/2) : gradient[i].
void hardswish_gradient(const float* gradient, const float* x, float* dst, std::int64_t count);

/// dst[i] = gradient[i] * a[i] + (x[i] - center[i]) * b[i] + c[i]; a `step` of 0 takes the first
/// numbers for all. The gradient of every normalization.
struct AffineGradient {
  const float* a;
  const float* center;
  const float* b;
  const float* c;
};
void affine_gradient(const float* gradient, const float* x, float* dst, std::int64_t count,
                     const AffineGradient& numbers, std::int64_t step);

/// Adds the sums of gradient[i] and gradient[i] * (x[i] - center), taken in double, to sums[0] and
/// sums[1].
void gradient_sums(const float* gradient, const float* x, std::int64_t count, float center,
                   double* sums);
/// Does the same for each of `channels` neighbouring columns of `rows` rows and adds to sums[c] and
/// sums[channels + c].
void gradient_channel_sums(const float* gradient, const float* x, std::int64_t rows,
                           std::int64_t channels, const float* center, double* sums);

}  // namespace quanta::cpu
