#pragma once

// Private: normalizations on the tape, and in Float64.

#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// Whether mean and variance are functions of x.
enum class Moments : bool { OfBatch, Given };

/// That the moments are those of x / divisor + shift; both may be undefined.
struct Quotient {
  Tensor divisor{};
  Tensor shift{};
  double eps = 0.0;
};
/// Records y = (x - mean) * inv_std * weight + bias for each channel. `mean` and `inv_std` are
/// Float64 [C]; weight and bias may be undefined. With a quotient inv_std is
/// 1 / (divisor * sqrt(var / divisor^2 + eps)), var being that of x.
Tensor record_batch_norm(const Tensor& x, const Tensor& mean, const Tensor& inv_std,
                         const Tensor& weight, const Tensor& bias, Moments moments, Tensor y,
                         const Quotient& quotient = {});

/// x, contiguous, as [samples, channels, volume]: each of `groups` groups of channels of a sample
/// has its statistics, each channel its weight. A layer norm has one group and a volume of 1.
struct GroupShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t volume = 1;
  std::int64_t groups = 1;

  std::int64_t members() const noexcept { return channels / groups; }
  std::int64_t count() const noexcept { return members() * volume; }
};

/// The normalized x, for Float64.
Tensor normalize_groups(const Tensor& x, const GroupShape& shape, const Tensor& weight,
                        const Tensor& bias, double eps);
/// Records such a result of Float32 or Float64.
Tensor record_group_norm(std::string_view op, const Tensor& x, const GroupShape& shape,
                         const Tensor& weight, const Tensor& bias, double eps, Tensor y);

}  // namespace quanta::gradients
