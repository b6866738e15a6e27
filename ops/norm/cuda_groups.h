#pragma once

// Private: normalizations over whole tensors on a CUDA device. Everything is dense.

#include <cstdint>

#include "quanta/ops/norm/call.h"
#include "quanta/runtime/device.h"

namespace quanta::cuda {

/// What goes in and out: floats and parameters of their dtype, or codes and parameters in Float32.
struct NormTensors {
  DType dtype{};
  const void* x = nullptr;
  DType parameters = DType::Float32;
  const void* weight = nullptr;  ///< of each channel; null: 1
  const void* bias = nullptr;    ///< null: 0
  void* y = nullptr;
  norm::NormOutput output;
};

/// By the statistics of each group. `scale` is that of the codes, 1 for floats.
void norm_groups(Device device, const norm::NormGeometry& geometry, std::int64_t groups,
                 const NormTensors& tensors, double scale, double eps);
/// By those of each of `rows` rows of `count` neighbouring elements.
void norm_each_row(Device device, std::int64_t rows, std::int64_t count, const NormTensors& tensors,
                   double scale, double eps);

/// What a batch norm goes by, a number for each channel.
struct BatchNormParameters {
  const void* mean = nullptr;
  const void* var = nullptr;
  double eps = 0.0;
  /// Of codes: the scales of input and result, and the input's zero point.
  double scale_in = 1.0;
  double scale_out = 1.0;
  std::int64_t zero_point_in = 0;
  double* statistics = nullptr;  ///< [2, channels]: mean and 1 / sqrt(var + eps); null: not wanted
};
void batch_norm(Device device, const norm::NormGeometry& geometry, const NormTensors& tensors,
                const BatchNormParameters& parameters);

}  // namespace quanta::cuda
