#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/dynamic/gate_weight.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/quantized/conv.h"

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

/// The from_float functions take the float module with a qconfig that observes weights as QInt8
/// (transposed ones: per tensor) and throw ArgumentError for another one or none.
class Conv1d : public DynamicConv<quantized::Conv1d> {
 public:
  Conv1d(const ConvOptions& options, const QTensor& weight, const Tensor& bias,
         PaddingMode padding_mode = PaddingMode::Zeros)
      : DynamicConv(options, weight, bias, 1.0, 0, padding_mode) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

class Conv2d : public DynamicConv<quantized::Conv2d> {
 public:
  Conv2d(const ConvOptions& options, const QTensor& weight, const Tensor& bias,
         PaddingMode padding_mode = PaddingMode::Zeros)
      : DynamicConv(options, weight, bias, 1.0, 0, padding_mode) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

class Conv3d : public DynamicConv<quantized::Conv3d> {
 public:
  Conv3d(const ConvOptions& options, const QTensor& weight, const Tensor& bias,
         PaddingMode padding_mode = PaddingMode::Zeros)
      : DynamicConv(options, weight, bias, 1.0, 0, padding_mode) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

class ConvTranspose1d : public DynamicConv<quantized::ConvTranspose1d> {
 public:
  ConvTranspose1d(const ConvTransposeOptions& options, const QTensor& weight, const Tensor& bias)
      : DynamicConv(options, weight, bias) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

class ConvTranspose2d : public DynamicConv<quantized::ConvTranspose2d> {
 public:
  ConvTranspose2d(const ConvTransposeOptions& options, const QTensor& weight, const Tensor& bias)
      : DynamicConv(options, weight, bias) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

class ConvTranspose3d : public DynamicConv<quantized::ConvTranspose3d> {
 public:
  ConvTranspose3d(const ConvTransposeOptions& options, const QTensor& weight, const Tensor& bias)
      : DynamicConv(options, weight, bias) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};

}  // namespace quanta::nn::quantized::dynamic
