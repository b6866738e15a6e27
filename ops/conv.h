#pragma once

#include <memory>

#include "quanta/runtime/tensor.h"

/// Convolutions in one to three dimensions and transposed, in float and int8.
///
/// All throw ArgumentError for dtypes, sizes, groups and options that do not fit. Many threads may
/// call them at once while nobody writes to the arguments; packed weights are immutable, and copies
/// share them.
namespace quanta {

/// Settings of a convolution. Each has one number per spatial dimension, or one for all.
struct ConvOptions {
  Dims stride{1};
  Dims padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
};

/// Settings of a transposed convolution, as in ConvOptions.
struct ConvTransposeOptions {
  Dims stride{1};
  Dims padding{0};
  Dims output_padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
};

/// What is done to a sum before it is written.
enum class Fusion : std::uint8_t { None, ReLU };

// The convolution of Float32 tensors: `x` is [N, C, spatial...] or [C, spatial...], `weight`
// [O, C/groups, kernel...] (transposed: [C, O/groups, kernel...]), `bias` [O] or undefined. The
// result is channels-last (1d: contiguous). On a CUDA device all may be Float16 or BFloat16: sums are
// taken in float, with the bias, and rounded once. Throws ArgumentError for wrong
// ranks, channel or group counts, or an output size < 1, UnsupportedError for other dtypes.
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

/// A float convolution whose weight is packed once, for modules. Immutable; copies share the
/// packing.
class PackedConv {
 public:
  PackedConv() = default;
  /// `spatial` is 1, 2 or 3.
  PackedConv(const Tensor& weight, const Tensor& bias, const ConvOptions& options,
             std::int64_t spatial, Fusion fusion = Fusion::None);
  bool defined() const noexcept { return impl_ != nullptr; }
  Tensor operator()(const Tensor& x) const;
  /// The same call, given the tensors that were packed, so that they get the gradients.
  Tensor operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

namespace quantized {

/// The weight and bias of a quantized convolution, packed once in the backend's layout. Immutable;
/// copies share the packing.
///
/// `weight` is QInt8, per tensor or per channel along the axis of the output channels (0;
/// transposed: 1, with groups 1 only), shape as in the float op; `bias` is Float32 [O] or undefined
/// and stays float:
///
///   q = clamp(zp + round_half_even((acc + bias / (sx * sw)) * (sx * sw / s)))
///
/// with acc the exact int32 sum of (x - zx) * (w - zw); padding counts as real zero.
///
/// An Int32 bias, as ONNX has it, is in units of sx * sw: q = clamp(zp + round_half_even((acc +
/// bias) * (sx * sw / s))).
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

// The convolution that was packed, of per-tensor QUInt8 `x` [N, C, spatial...] or [C, spatial...].
// The result is QUInt8 with the given parameters, channels-last (1d too).
QTensor conv(const QTensor& x, const ConvPackedParams& packed, double scale,
             std::int64_t zero_point);
QTensor conv_relu(const QTensor& x, const ConvPackedParams& packed, double scale,
                  std::int64_t zero_point);
// conv(x) + accum in float, relu where the name says so, then quantize: torch's conv2d_add and
// conv2d_add_relu.
QTensor conv_add(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                 double scale, std::int64_t zero_point);
QTensor conv_add_relu(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                      double scale, std::int64_t zero_point);

/// The same convolution with a Float32 result, channels-last (1d: contiguous):
///
///   y = float(acc + integer bias) * (sx * sw) + float bias
Tensor conv_to_float(const QTensor& x, const ConvPackedParams& packed);

}  // namespace quantized
}  // namespace quanta
