#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

// Throws ArgumentError for tensors that do not fit. Safe from many threads at once.

namespace quanta {

/// Weight and bias of a convolution or linear layer that does what it and the batch norm after it
/// did: w * (gamma * r), (b - mean) * r * gamma + beta, r = 1 / sqrt(var + eps), in float32.
/// Channels are dimension 0 of `weight` (transposed convolutions: see `transposed_groups`, which is
/// their group count, else 0). Undefined bias, gamma, beta stand for 0, 1, 0.
struct FoldedWeights {
  Tensor weight;
  Tensor bias;
};
FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                              const Tensor& running_var, double eps, const Tensor& gamma,
                              const Tensor& beta, std::int64_t transposed_groups = 0);

}  // namespace quanta
