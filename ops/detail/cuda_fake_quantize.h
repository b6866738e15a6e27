#pragma once

// Private: fake quantization on a CUDA device, as host code asks for it.

#include <cstdint>

#include "quanta/ops/cuda/fake_quantize.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

/// Scales and zero points of channels on the device, while this lives.
class FakeQuantizeChannelsOf {
 public:
  /// Tensors on one device, of one size and any floating or integer dtype.
  FakeQuantizeChannelsOf(const Tensor& scale, const Tensor& zero_point, std::int64_t quant_min,
                         std::int64_t quant_max, ZeroPointUse use = ZeroPointUse::AsGiven);
  /// One channel.
  FakeQuantizeChannelsOf(float scale, float zero_point, std::int64_t quant_min,
                         std::int64_t quant_max);

  FakeQuantizeQParams qparams;  // float_zero_point: false
  std::int64_t count = 1;

 private:
  Tensor scale_;
  Tensor zero_point_;
};

/// As cpu::fake_quantize_tensor: `mask` may be undefined.
void fake_quantize_tensor(const Tensor& x, std::int64_t axis,
                          const FakeQuantizeChannelsOf& channels, const Tensor& out,
                          const Tensor& mask);

/// out = grad where the mask has a bit, else 0: Float32 or Float64, dense in the mask's order.
void masked_gradient(const Tensor& grad, std::int64_t axis, const Tensor& mask, const Tensor& out);

/// As cpu::learned_gradients; `x`, `grad` and `x_grad` as above. The sums times `factor` are
/// Float64 [channels].
void learned_gradients(const Tensor& x, const Tensor& grad, std::int64_t axis,
                       const FakeQuantizeChannelsOf& channels, double factor, const Tensor& x_grad,
                       const Tensor& scale_grad, const Tensor& zero_point_grad);

}  // namespace quanta::cuda
