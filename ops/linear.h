#pragma once

#include <memory>

#include "quanta/ops/conv.h"
#include "quanta/runtime/tensor.h"

namespace quanta {

/// x [..., K] times weight [N, K] transposed, plus bias [N] (may be undefined). Float32.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// A float linear layer whose weight is packed once, for modules.
class PackedLinear {
 public:
  PackedLinear() = default;
  PackedLinear(const Tensor& weight, const Tensor& bias, Fusion fusion = Fusion::None);
  bool defined() const noexcept { return impl_ != nullptr; }
  Tensor operator()(const Tensor& x) const;
  /// The same with the tensors that were packed, which get the gradients: for modules.
  Tensor operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

namespace quantized {

/// Weight QInt8 [N, K] (per tensor, or per channel along axis 0) and float bias [N] of a
/// quantized linear layer, packed once. Arithmetic as for ConvPackedParams.
class LinearPackedParams {
 public:
  LinearPackedParams() = default;
  LinearPackedParams(const QTensor& weight, const Tensor& bias);
  bool defined() const noexcept { return impl_ != nullptr; }
  const QTensor& weight() const;
  const Tensor& bias() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// `x` is per-tensor QUInt8 [..., K]; the result is QUInt8 [..., N] with the given parameters.
QTensor linear(const QTensor& x, const LinearPackedParams& packed, double scale,
               std::int64_t zero_point);
QTensor linear_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point);
/// The sum in float, leaky relu, then quantized.
QTensor linear_leaky_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                          std::int64_t zero_point, double negative_slope);
/// The sum in float, tanh, then quantized.
QTensor linear_tanh(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
