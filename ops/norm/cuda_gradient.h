#pragma once

// Private: batch norm in training, and the way back through all norms, on a CUDA device, for Float32.
// Sums are taken in double, in another order than the CPU's: floats differ from the CPU's in their
// last bit at times.

#include <vector>

#include "quanta/ops/norm/call.h"
#include "quanta/ops/norm/gradient.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

/// What a batch norm in training is given beside x; each tensor may be undefined.
struct BatchNormTraining {
  const Tensor& running_mean;
  const Tensor& running_var;
  const Tensor& weight;
  const Tensor& bias;
  const Tensor& divisor;
  const Tensor& shift;
  double eps = 0.0;
  double momentum = 0.0;
};

/// Writes y, and mean and inv_std (Float64 [C]) for the way back; moves the running statistics.
void batch_norm_train(const norm::NormGeometry& geometry, const Tensor& x,
                      const BatchNormTraining& given, const Tensor& y, const Tensor& mean,
                      const Tensor& inv_std);

/// `gradient` and `x` are those of `given`, dense in one order of memory.
norm::BatchNormGradients batch_norm_gradients(const norm::BatchNormBackward& given,
                                              const Tensor& gradient, const Tensor& x);

/// Of x, weight and bias.
std::vector<Tensor> group_norm_gradients(const norm::GroupNormBackward& given,
                                         const norm::GroupShape& shape);

}  // namespace quanta::cuda
