#pragma once

// Private: losses of elements on a CUDA device, with the CPU's arithmetic and order of sums.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {

enum class LossKind : std::uint8_t { Squared, Absolute, SmoothAbsolute, BinaryCrossEntropy };

/// Dense Float32; weights that are null are 1.
struct PointwiseLossParams {
  LossKind kind{};
  double beta = 1.0;  // of SmoothAbsolute
  const float* input = nullptr;
  const float* target = nullptr;
  const float* weight = nullptr;
  const float* positive = nullptr;
  std::int64_t count = 0;
};

struct LossesParams {
  PointwiseLossParams elements;
  float* losses = nullptr;
};
QUANTA_CUDA_ENTRY(pointwise_losses, LossesParams)

/// parts: the sum of each block of detail::kBlockTerms.
struct LossPartsParams {
  PointwiseLossParams elements;
  double* parts = nullptr;
};
QUANTA_CUDA_ENTRY(sum_pointwise_losses, LossPartsParams)

enum class LossSide : std::uint8_t { Input, Target };

/// result[i] = derivative * weight * gradient[i * step] * share.
struct LossGradientParams {
  PointwiseLossParams elements;
  LossSide side{};
  const float* gradient = nullptr;
  std::int64_t step = 0;
  float share = 1.0F;
  float* result = nullptr;
};
QUANTA_CUDA_ENTRY(pointwise_loss_gradient, LossGradientParams)

/// y = float(sum of parts / divisor), where divisor is that of divisor_parts if there are any.
struct JoinLossParams {
  const double* parts = nullptr;  // null: only the divisor is wanted
  const double* divisor_parts = nullptr;
  std::int64_t count = 0;
  double divisor = 1.0;
  double* divisor_result = nullptr;  // null: not wanted
  float* y = nullptr;
};
QUANTA_CUDA_ENTRY(join_loss_parts, JoinLossParams)

/// The sums of the blocks of so many terms.
class LossSums {
 public:
  LossSums(Device device, std::int64_t terms);
  double* parts() const noexcept { return parts_.as<double>(); }
  /// `params` but for parts and count.
  void join(JoinLossParams params) const;

 private:
  Device device_;
  std::int64_t count_;
  Buffer parts_;
};

}  // namespace quanta::cuda
