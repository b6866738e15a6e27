#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/nn/packed_cache.h"
#include "quanta/ops/conv.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

/// What stands in the padding of a convolution: zeros, or elements of the input (see PadMode). The
/// quantized convolutions know Zeros and, in 1d and 2d, Reflect.
enum class PaddingMode : std::uint8_t { Zeros, Reflect, Replicate, Circular };

/// Arguments of Conv1d, Conv2d and Conv3d. Each Dims has one number per spatial dimension, or one
/// for all.
struct ConvNdOptions {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  Dims kernel_size{};
  Dims stride{1};
  Dims padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
  bool bias = true;
  PaddingMode padding_mode = PaddingMode::Zeros;
};
using Conv1dOptions = ConvNdOptions;
using Conv2dOptions = ConvNdOptions;
using Conv3dOptions = ConvNdOptions;

/// What the convolutions of 1 to 3 spatial dimensions share; use Conv1d, Conv2d, Conv3d.
///
/// x [N, in_channels, spatial...] or [in_channels, spatial...], Float32. A new layer's weight and
/// bias are uniform in +-1/sqrt(in_channels / groups * kernel), from default_generator().
/// In eval mode the weight is packed once and again after it was changed.
class ConvNd : public Module {
 public:
  using Options = ConvNdOptions;
  /// [out_channels, in_channels / groups, kernel...]
  Tensor weight;
  /// [out_channels], or undefined.
  Tensor bias;

  /// With one number per spatial dimension everywhere.
  const ConvNdOptions& options() const noexcept { return options_; }
  std::int64_t spatial() const noexcept { return spatial_; }

  Tensor forward(const Tensor& x) const override { return forward(x, Fusion::None); }
  /// The convolution and what follows it in one step.
  Tensor forward(const Tensor& x, Fusion fusion) const;
  std::string extra_repr() const override;

 protected:
  /// Throws ArgumentError for channels < 1 or not divisible by groups, and for kernel sizes,
  /// strides, dilations < 1 or a padding < 0.
  ConvNd(const ConvNdOptions& options, std::int64_t spatial);
  static ConvNdOptions with_sizes(std::int64_t in_channels, std::int64_t out_channels,
                                  const Dims& kernel_size, const ConvNdOptions& more);

 private:
  ConvNdOptions options_;
  std::int64_t spatial_;
  mutable detail::PackedCache<PackedConv> packed_;
};

/// Conv1d, Conv2d and Conv3d; N is the number of spatial dimensions.
template <int N>
class Conv : public ConvNd {
 public:
  explicit Conv(const ConvNdOptions& options) : ConvNd(options, N) {}
  /// torch's order, and what follows by name: Conv2d(3, 8, 3, {.stride = 2, .padding = 1}).
  /// Throws ArgumentError as well if `more` has other channels or another kernel_size.
  explicit Conv(std::int64_t in_channels, std::int64_t out_channels, const Dims& kernel_size,
                const ConvNdOptions& more = {})
      : ConvNd(with_sizes(in_channels, out_channels, kernel_size, more), N) {}
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;

/// Arguments of ConvTranspose1d, ConvTranspose2d and ConvTranspose3d, in torch's order.
struct ConvTransposeNdOptions {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  Dims kernel_size{};
  Dims stride{1};
  Dims padding{0};
  Dims output_padding{0};
  std::int64_t groups = 1;
  bool bias = true;
  Dims dilation{1};
};
using ConvTranspose1dOptions = ConvTransposeNdOptions;
using ConvTranspose2dOptions = ConvTransposeNdOptions;
using ConvTranspose3dOptions = ConvTransposeNdOptions;

/// What the transposed convolutions share; use ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
class ConvTransposeNd : public Module {
 public:
  using Options = ConvTransposeNdOptions;
  /// [in_channels, out_channels / groups, kernel...]
  Tensor weight;
  /// [out_channels], or undefined.
  Tensor bias;

  /// With one number per spatial dimension everywhere.
  const ConvTransposeNdOptions& options() const noexcept { return options_; }
  std::int64_t spatial() const noexcept { return spatial_; }

  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  /// Throws ArgumentError as ConvNd does, and for an output_padding that is neither smaller than
  /// the stride nor than the dilation.
  ConvTransposeNd(const ConvTransposeNdOptions& options, std::int64_t spatial);
  static ConvTransposeNdOptions with_sizes(std::int64_t in_channels, std::int64_t out_channels,
                                           const Dims& kernel_size,
                                           const ConvTransposeNdOptions& more);

 private:
  ConvTransposeNdOptions options_;
  std::int64_t spatial_;
};

/// ConvTranspose1d, ConvTranspose2d and ConvTranspose3d; N is the number of spatial dimensions.
template <int N>
class ConvTranspose : public ConvTransposeNd {
 public:
  explicit ConvTranspose(const ConvTransposeNdOptions& options) : ConvTransposeNd(options, N) {}
  /// torch's order, and what follows by name: ConvTranspose2d(3, 8, 3, {.stride = 2, .padding = 1}).
  /// Throws ArgumentError as well if `more` has other channels or another kernel_size.
  explicit ConvTranspose(std::int64_t in_channels, std::int64_t out_channels,
                         const Dims& kernel_size, const ConvTransposeNdOptions& more = {})
      : ConvTransposeNd(with_sizes(in_channels, out_channels, kernel_size, more), N) {}
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;

}  // namespace quanta::nn
