#pragma once

// Private: the way back through normalizations.

#include <cstdint>
#include <vector>

#include "quanta/ops/norm.h"
#include "quanta/ops/norm/cpu_groups.h"
#include "quanta/runtime/tensor.h"

namespace quanta::norm {

/// Whether mean and variance are functions of x.
enum class Moments : bool { OfBatch, Given };

/// y = (x - mean) * inv_std * weight + bias for each channel. With a divisor and a shift the
/// moments are those of x / divisor + shift, and inv_std is 1 / (divisor * sqrt(var / divisor^2 +
/// eps)), var being that of x.
struct BatchNormBackward {
  struct Needs {
    bool x = false;
    bool weight = false;
    bool bias = false;
    bool divisor = false;
  };
  Tensor gradient;
  Tensor x;
  Tensor mean;     ///< Float64 [C]
  Tensor inv_std;  ///< Float64 [C]
  Tensor weight;   ///< may be undefined
  Moments moments = Moments::OfBatch;
  Tensor divisor;  ///< may be undefined
  double eps = 0.0;
  /// Of a part of a batch (CPU): sums over all parts, and the elements of a channel in all of them.
  SumOverParts sum{};
  std::int64_t count = 0;
  Needs needs;
};
/// Those that are needed.
struct BatchNormGradients {
  Tensor x, weight, bias, divisor;
};
BatchNormGradients batch_norm_gradients(const BatchNormBackward& given);

/// A normalization by groups; weight and bias have `parameter_sizes`, or are undefined.
struct GroupNormBackward {
  Tensor gradient;
  Tensor x;
  Tensor weight;
  Dims parameter_sizes;
  double eps = 0.0;
  bool needs_weight = false;
  bool needs_bias = false;
};
/// Of x, weight and bias.
std::vector<Tensor> group_norm_gradients(const GroupNormBackward& given, const GroupShape& shape);

}  // namespace quanta::norm
