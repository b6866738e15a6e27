#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "quanta/nn/conv.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/reference.h"
#include "quanta/ops/conv.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// What the quantized convolutions share. The weight is packed once, when it is set.
/// State: `weight` (QInt8), `bias` (Float32, absent without one), `scale`, `zero_point`.
class ConvBase : public OutputQuantized {
 public:
  /// QInt8, per tensor or per channel along axis 0, sizes as in the float layer.
  const QTensor& weight() const { return packed_.weight(); }
  /// Float32 [out_channels], or undefined.
  const Tensor& bias() const { return packed_.bias(); }
  /// Packs again. Throws ArgumentError for other sizes or dtypes.
  void set_weight_bias(const QTensor& weight, const Tensor& bias);
  const quanta::quantized::ConvPackedParams& packed() const noexcept { return packed_; }

  std::string extra_repr() const override;

 protected:
  ConvBase(quanta::quantized::ConvPackedParams packed, double scale, std::int64_t zero_point);
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  quanta::quantized::ConvPackedParams packed_;
};

/// x QUInt8 [N, C, spatial...] or [C, spatial...]; the result is QUInt8. See ops/conv.h. With
/// PaddingMode::Reflect, in 1d and 2d, the codes of x are padded by those inside of it first; other
/// modes throw UnsupportedError.
class ConvNd : public ConvBase {
 public:
  PaddingMode padding_mode() const noexcept { return padding_mode_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  ConvNd(const ConvOptions& options, std::int64_t spatial, const QTensor& weight,
         const Tensor& bias, double scale, std::int64_t zero_point, PaddingMode padding_mode);
  /// x as packed() takes it. Throws ArgumentError `op: x: ...` unless it is quantized.
  QTensor input(std::string_view op, const Tensor& x) const;
  /// x, padded where that is not with zeros.
  Tensor padded(std::string_view op, const Tensor& x) const;

 private:
  PaddingMode padding_mode_;
  Dims reflected_;  // the padding that input() adds, one number per spatial dimension, or none
};

/// Conv1d, Conv2d and Conv3d; N is the number of spatial dimensions.
template <int N>
class Conv : public ConvNd {
 public:
  Conv(const ConvOptions& options, const QTensor& weight, const Tensor& bias, double scale = 1.0,
       std::int64_t zero_point = 0, PaddingMode padding_mode = PaddingMode::Zeros)
      : ConvNd(options, N, weight, bias, scale, zero_point, padding_mode) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const reference::Conv<N>& module, double scale,
                                                std::int64_t zero_point);
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;
extern template class Conv<1>;
extern template class Conv<2>;
extern template class Conv<3>;

/// Transposed convolutions; the weight is quantized per tensor.
class ConvTransposeNd : public ConvBase {
 public:
  Tensor forward(const Tensor& x) const override;

 protected:
  ConvTransposeNd(const ConvTransposeOptions& options, std::int64_t spatial, const QTensor& weight,
                  const Tensor& bias, double scale, std::int64_t zero_point);
  /// x: the padding is the convolution's.
  static const Tensor& padded(std::string_view, const Tensor& x) { return x; }
};

/// ConvTranspose1d, ConvTranspose2d and ConvTranspose3d; N is the number of spatial dimensions.
template <int N>
class ConvTranspose : public ConvTransposeNd {
 public:
  ConvTranspose(const ConvTransposeOptions& options, const QTensor& weight, const Tensor& bias,
                double scale = 1.0, std::int64_t zero_point = 0)
      : ConvTransposeNd(options, N, weight, bias, scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const reference::ConvTranspose<N>& module,
                                                double scale, std::int64_t zero_point);
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;
extern template class ConvTranspose<1>;
extern template class ConvTranspose<2>;
extern template class ConvTranspose<3>;

}  // namespace quanta::nn::quantized
