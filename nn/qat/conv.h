#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/conv.h"
#include "quanta/nn/qat/module.h"

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

// from_float takes the float convolution with a qconfig; parameters are shared with it. Throws
// ArgumentError.

class Conv1d : public ConvOf<nn::Conv1d> {
 public:
  using ConvOf<nn::Conv1d>::ConvOf;
  static std::shared_ptr<Module> from_float(const Module& module);
};

class Conv2d : public ConvOf<nn::Conv2d> {
 public:
  using ConvOf<nn::Conv2d>::ConvOf;
  static std::shared_ptr<Module> from_float(const Module& module);
};

class Conv3d : public ConvOf<nn::Conv3d> {
 public:
  using ConvOf<nn::Conv3d>::ConvOf;
  static std::shared_ptr<Module> from_float(const Module& module);
};

}  // namespace quanta::nn::qat

namespace quanta::nn::intrinsic::qat {

// Convolution and ReLU; from_float takes the intrinsic module of the same name.

class ConvReLU1d : public nn::qat::Conv1d {
 public:
  using nn::qat::Conv1d::Conv1d;
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
};

class ConvReLU2d : public nn::qat::Conv2d {
 public:
  using nn::qat::Conv2d::Conv2d;
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
};

class ConvReLU3d : public nn::qat::Conv3d {
 public:
  using nn::qat::Conv3d::Conv3d;
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
};

}  // namespace quanta::nn::intrinsic::qat
