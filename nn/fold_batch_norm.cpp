#include "quanta/nn/fold_batch_norm.h"

#include <algorithm>
#include <cmath>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

void check_channels(const Tensor& tensor, std::int64_t channels, const char* argument) {
  QUANTA_CHECK(tensor.dtype() == DType::Float32 && tensor.sizes() == Dims{channels},
               "fold_batch_norm: {}: expected Float32 [{}], got {} {}", argument, channels,
               tensor.dtype(), tensor.sizes());
}

}  // namespace

FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                              const Tensor& running_var, double eps, const Tensor& gamma,
                              const Tensor& beta, std::int64_t transposed_groups) {
  QUANTA_CHECK(weight.dtype() == DType::Float32 && weight.dim() >= 2,
               "fold_batch_norm: weight: expected Float32 of 2 or more dimensions, got {} {}",
               weight.dtype(), weight.sizes());
  QUANTA_CHECK(running_mean.defined() && running_var.defined(),
               "fold_batch_norm: running_mean: expected running statistics, got none");
  const bool transposed = transposed_groups > 0;
  const std::int64_t channels = transposed ? weight.size(1) * transposed_groups : weight.size(0);
  check_channels(running_mean, channels, "running_mean");
  check_channels(running_var, channels, "running_var");
  if (bias.defined()) check_channels(bias, channels, "bias");
  if (gamma.defined()) check_channels(gamma, channels, "gamma");
  if (beta.defined()) check_channels(beta, channels, "beta");

  FoldedWeights folded{weight.clone(MemoryFormat::Contiguous), Tensor::zeros({channels})};
  const auto at = [](const Tensor& tensor, std::int64_t c, float missing) {
    return tensor.defined() ? tensor.data<float>()[c * tensor.strides()[0]] : missing;
  };
  auto* weights = folded.weight.mutable_data<float>();
  auto* biases = folded.bias.mutable_data<float>();
  const auto eps32 = static_cast<float>(eps);
  // In a transposed weight [C, O/groups, ...] the rows c belong to group c / (C / groups).
  const std::int64_t rows = weight.size(0);
  const std::int64_t row_length = weight.numel() / std::max<std::int64_t>(rows, 1);
  const std::int64_t kernel =
      transposed ? row_length / std::max<std::int64_t>(weight.size(1), 1) : row_length;
  for (std::int64_t c = 0; c < channels; ++c) {
    const float r = 1.0F / std::sqrt(at(running_var, c, 1.0F) + eps32);
    const float factor = at(gamma, c, 1.0F) * r;
    if (transposed) {
      const std::int64_t per_group = weight.size(1);
      const std::int64_t group_rows = rows / transposed_groups;
      const std::int64_t group = c / per_group;
      for (std::int64_t i = 0; i < group_rows; ++i) {
        float* taps = weights + ((group * group_rows + i) * per_group + c % per_group) * kernel;
        for (std::int64_t k = 0; k < kernel; ++k) taps[k] *= factor;
      }
    } else {
      for (std::int64_t k = 0; k < row_length; ++k) weights[c * row_length + k] *= factor;
    }
    // torch's order: (b - mean) * r * gamma + beta.
    const float centred = at(bias, c, 0.0F) - at(running_mean, c, 0.0F);
    biases[c] = centred * r * at(gamma, c, 1.0F) + at(beta, c, 0.0F);
  }
  return folded;
}

}  // namespace quanta
