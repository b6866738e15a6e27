#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/conv.h"
#include "quanta/nn/qat/module.h"

// Constructors and calls throw ArgumentError for what does not fit. While a module is trained one
// thread at a time may call it; in eval mode with observers switched off many may (see
// nn/module.h).

namespace quanta::nn::qat {

/// What the convolutions share; `Layer` is nn::Conv1d, nn::Conv2d or nn::Conv3d.
template <typename Layer>
class ConvOf : public Layer, public QatModule {
 public:
  ConvOf(const ConvNdOptions& options, const QConfig& qconfig);
  /// The convolution with the fake-quantized weight.
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;

 protected:
  std::vector<Module::NamedObserver> own_observers() const override { return weight_observers(); }
};
extern template class ConvOf<nn::Conv1d>;
extern template class ConvOf<nn::Conv2d>;
extern template class ConvOf<nn::Conv3d>;

/// Conv1d, Conv2d and Conv3d; N is the number of spatial dimensions. from_float takes the float
/// convolution with a qconfig; parameters are shared with it. Throws ArgumentError.
template <int N>
class Conv : public ConvOf<nn::Conv<N>> {
 public:
  using ConvOf<nn::Conv<N>>::ConvOf;
  static std::shared_ptr<Module> from_float(const Module& module);
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;
extern template class Conv<1>;
extern template class Conv<2>;
extern template class Conv<3>;

}  // namespace quanta::nn::qat

namespace quanta::nn::intrinsic::qat {

/// ConvReLU1d, ConvReLU2d and ConvReLU3d; from_float takes the intrinsic module of the same name.
template <int N>
class ConvReLU : public nn::qat::Conv<N> {
 public:
  using nn::qat::Conv<N>::Conv;
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
};
using ConvReLU1d = ConvReLU<1>;
using ConvReLU2d = ConvReLU<2>;
using ConvReLU3d = ConvReLU<3>;
extern template class ConvReLU<1>;
extern template class ConvReLU<2>;
extern template class ConvReLU<3>;

}  // namespace quanta::nn::intrinsic::qat
