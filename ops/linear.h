#pragma once

#include <memory>

#include "quanta/ops/conv.h"
#include "quanta/runtime/tensor.h"

/// Linear layers in float and int8.
///
/// All throw ArgumentError for dtypes and sizes that do not fit. Many threads may call them at once
/// while nobody writes to the arguments; packed weights are immutable, and copies share them.
namespace quanta {

/// `x` [..., K] times `weight` [N, K] transposed, plus `bias` [N] (may be undefined), in Float32; on
/// a CUDA device also in Float16 or BFloat16, as all tensors are, summed in float and rounded once.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// A float linear layer whose weight is packed once, for modules. Immutable; copies share it.
class PackedLinear {
 public:
  PackedLinear() = default;
  PackedLinear(const Tensor& weight, const Tensor& bias, Fusion fusion = Fusion::None);
  bool defined() const noexcept { return impl_ != nullptr; }
  Tensor operator()(const Tensor& x) const;
  /// The same call, given the tensors that were packed, so that they get the gradients.
  Tensor operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

namespace quantized {

/// The weight and bias of a quantized linear layer, packed once: QInt8 [N, K], per tensor or per
/// channel along axis 0, and Float32 or Int32 [N] or undefined. The arithmetic is that of
/// ConvPackedParams.
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

// The layer that was packed, of per-tensor QUInt8 `x` [..., K]; the result is QUInt8 [..., N] with
// the given parameters. With relu, leaky relu or tanh where the name says so.
QTensor linear(const QTensor& x, const LinearPackedParams& packed, double scale,
               std::int64_t zero_point);
QTensor linear_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point);
/// Leaky relu of the sum in float, then quantized.
QTensor linear_leaky_relu(const QTensor& x, const LinearPackedParams& packed, double scale,
                          std::int64_t zero_point, double negative_slope);
/// Tanh of the sum in float, then quantized.
QTensor linear_tanh(const QTensor& x, const LinearPackedParams& packed, double scale,
                    std::int64_t zero_point);

/// The same layer with a Float32 result, as conv_to_float.
Tensor linear_to_float(const QTensor& x, const LinearPackedParams& packed);

}  // namespace quantized
}  // namespace quanta
