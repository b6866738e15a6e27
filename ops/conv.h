#pragma once

#include <memory>

#include "quanta/runtime/tensor.h"

namespace quanta {

/// One number per spatial dimension, or one for all.
struct ConvOptions {
  Dims stride{1};
  Dims padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
};

struct ConvTransposeOptions {
  Dims stride{1};
  Dims padding{0};
  Dims output_padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
};

/// What is done to a sum before it is written.
enum class Fusion : std::uint8_t { None, ReLU };

// Float32. x [N, C, spatial...] or [C, spatial...]; weight [O, C/groups, kernel...] (transposed:
// [C, O/groups, kernel...]); bias [O] or undefined. Result channels-last (1d: contiguous).
// Throws ArgumentError for wrong ranks, channel or group counts, or an output size < 1.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options = {});
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options = {});
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options = {});

/// A float convolution whose weight is packed once, for modules. Copies share the packing.
class PackedConv {
 public:
  PackedConv() = default;
  /// `spatial` is 1, 2 or 3.
  PackedConv(const Tensor& weight, const Tensor& bias, const ConvOptions& options,
             std::int64_t spatial, Fusion fusion = Fusion::None);
  bool defined() const noexcept { return impl_ != nullptr; }
  Tensor operator()(const Tensor& x) const;
  /// The same with the tensors that were packed, which get the gradients: for modules.
  Tensor operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

namespace quantized {

/// The weight and bias of a quantized convolution, packed once in the backend's layout.
/// Copies share the packing; calling is safe from many threads.
///
/// `weight` is QInt8, per tensor or per channel along the axis of the output channels (0;
/// transposed: 1, with groups 1 only), shape as in the float op; `bias` is Float32 [O] or undefined
/// and stays float:
///   q = clamp(zp + round_half_even((acc + bias / (sx * sw)) * (sx * sw / s)))
/// with acc the exact int32 sum of (x - zx) * (w - zw); padding counts as real zero.
class ConvPackedParams {
 public:
  ConvPackedParams() = default;
  /// `spatial` is 1, 2 or 3. Throws ArgumentError.
  ConvPackedParams(const QTensor& weight, const Tensor& bias, const ConvOptions& options,
                   std::int64_t spatial);
  static ConvPackedParams transposed(const QTensor& weight, const Tensor& bias,
                                     const ConvTransposeOptions& options, std::int64_t spatial);

  bool defined() const noexcept { return impl_ != nullptr; }
  /// What was packed.
  const QTensor& weight() const;
  const Tensor& bias() const;
  std::int64_t spatial() const;
  bool is_transposed() const;
  /// Output padding is 0 unless transposed.
  const ConvTransposeOptions& options() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// `x` is per-tensor QUInt8 [N, C, spatial...] or [C, spatial...]; the result is QUInt8 with the
// given parameters, channels-last (1d: contiguous). Works for 1d, 2d, 3d and transposed, as packed.
QTensor conv(const QTensor& x, const ConvPackedParams& packed, double scale,
             std::int64_t zero_point);
QTensor conv_relu(const QTensor& x, const ConvPackedParams& packed, double scale,
                  std::int64_t zero_point);
/// conv(x) + accum in float, then (relu and) quantize: torch's conv2d_add, conv2d_add_relu.
QTensor conv_add(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                 double scale, std::int64_t zero_point);
QTensor conv_add_relu(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                      double scale, std::int64_t zero_point);

}  // namespace quantized
}  // namespace quanta
