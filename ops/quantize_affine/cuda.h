#pragma once

// Private: affine quantizers on a CUDA device, as host code asks for them.

#include "quanta/ops/cpu/affine_rows.h"
#include "quanta/ops/quantize_affine/affine_op.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

struct AffineCall {
  AffineOp op = AffineOp::Quantize;
  AffineStep step = AffineStep::Native;
  math::AffineLimits<double> limits;
};

/// As cpu::affine_forward, on dense tensors of one dtype, Float32 or Float64.
void affine_forward(const AffineCall& call, const Tensor& x, const cpu::AffineLayout& layout,
                    const Tensor& scale, const Tensor& offset, const Tensor& y);

struct AffineGradients {
  Tensor x;
  Tensor scale;
  Tensor offset;
};
/// As cpu::affine_backward, with sums in the dtype of x.
void affine_backward(const AffineCall& call, const Tensor& x, const Tensor& grad,
                     const cpu::AffineLayout& layout, const Tensor& scale, const Tensor& offset,
                     const AffineGradients& gradients);

/// math::affine_spike for each gradient of x.
void affine_spike(const AffineCall& call, const math::AffineSpike<double>& spike, const Tensor& x,
                  const cpu::AffineLayout& layout, const Tensor& scale, const Tensor& x_grad);

}  // namespace quanta::cuda
