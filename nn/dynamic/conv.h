#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/dynamic/gate_weight.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/quantized/conv.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Convolutions whose activation stays Float32: every call quantizes x with parameters chosen from
/// its minimum and maximum, runs the quantized convolution *with the same parameters for its
/// result*, and dequantizes that. So results lie on a grid as coarse as the input's and are cut off
/// beyond its range, as in torch, whose own modules warn of it; quantize_dynamic leaves
/// convolutions alone. State as of the nn::quantized modules they derive from (`scale` 1,
/// `zero_point` 0), and `reduce_range` (Int64 0) where codes use 8 bits.
namespace quanta::nn::quantized::dynamic {

/// What is dynamic about them; Static is the nn::quantized module of the same name.
template <typename Static>
class DynamicConv : public Static, public DynamicModule {
 public:
  /// Float32 [N, C, spatial...] or [C, spatial...] to Float32.
  Tensor forward(const Tensor& x) const override;
  std::string type_name() const override;

 protected:
  using Static::Static;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;
};

extern template class DynamicConv<quantized::Conv1d>;
extern template class DynamicConv<quantized::Conv2d>;
extern template class DynamicConv<quantized::Conv3d>;
extern template class DynamicConv<quantized::ConvTranspose1d>;
extern template class DynamicConv<quantized::ConvTranspose2d>;
extern template class DynamicConv<quantized::ConvTranspose3d>;

/// Conv1d, Conv2d and Conv3d; N is the number of spatial dimensions. from_float takes the float
/// module with a qconfig that observes weights as QInt8 and throws ArgumentError for another one or
/// none.
template <int N>
class Conv : public DynamicConv<quantized::Conv<N>> {
 public:
  Conv(const ConvOptions& options, const QTensor& weight, const Tensor& bias,
       PaddingMode padding_mode = PaddingMode::Zeros)
      : DynamicConv<quantized::Conv<N>>(options, weight, bias, 1.0, 0, padding_mode) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;
extern template class Conv<1>;
extern template class Conv<2>;
extern template class Conv<3>;

/// ConvTranspose1d, ConvTranspose2d and ConvTranspose3d. from_float as Conv's; the qconfig observes
/// weights per tensor.
template <int N>
class ConvTranspose : public DynamicConv<quantized::ConvTranspose<N>> {
 public:
  ConvTranspose(const ConvTransposeOptions& options, const QTensor& weight, const Tensor& bias)
      : DynamicConv<quantized::ConvTranspose<N>>(options, weight, bias) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;
extern template class ConvTranspose<1>;
extern template class ConvTranspose<2>;
extern template class ConvTranspose<3>;

}  // namespace quanta::nn::quantized::dynamic
