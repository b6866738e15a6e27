#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/qat/module.h"

// Constructors and calls throw ArgumentError for what does not fit. While a module is trained one
// thread at a time may call it; in eval mode with observers switched off many may (see
// nn/module.h).

/// Layers with the batch norm that follows them, trained together so that the weight is
/// fake-quantized as it will be folded (torch.ao.nn.intrinsic.qat):
///
///   f = bn.weight / sqrt(bn.running_var + eps)          before this step's update
///   y = bn(layer(x, fake_quant(weight * f)) / f + bias)
///
/// State: weight, bias, weight_fake_quant.*, bn.*.
namespace quanta::nn::intrinsic::qat {

/// Switches of the batch norm's statistics, for modules of every kind below.
class BatchNormControl {
 public:
  virtual ~BatchNormControl() = default;
  /// Freezes the running statistics: they are used and stay as they are, in train mode as well.
  virtual void freeze_bn_stats() = 0;
  /// Undoes it.
  virtual void update_bn_stats() = 0;
};

/// What they share. `Layer` is a float layer, `Norm` the batch norm of its rank.
template <typename Layer, typename Norm, typename Options>
class LayerBn : public Layer, public nn::qat::QatModule, public BatchNormControl {
 public:
  Child<Norm> bn;

  /// bn.num_features is set to the layer's channels. Throws ArgumentError as the float layers do.
  LayerBn(const Options& options, const BatchNormOptions& bn_options, const QConfig& qconfig);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
  /// A frozen batch norm stays in eval mode.
  Module& train(bool on = true) override;
  void freeze_bn_stats() override;
  void update_bn_stats() override;
  bool is_bn_frozen() const noexcept { return frozen_; }

 protected:
  std::vector<Module::NamedObserver> own_observers() const override { return weight_observers(); }

 private:
  bool frozen_ = false;
};
extern template class LayerBn<nn::Conv1d, nn::BatchNorm1d, ConvNdOptions>;
extern template class LayerBn<nn::Conv2d, nn::BatchNorm2d, ConvNdOptions>;
extern template class LayerBn<nn::Conv3d, nn::BatchNorm3d, ConvNdOptions>;
extern template class LayerBn<nn::Linear, nn::BatchNorm1d, LinearOptions>;

// from_float takes the intrinsic module of the same name with a qconfig; parameters and running
// statistics are shared with it. Throws ArgumentError. N is the number of spatial dimensions.

template <int N>
class ConvBn : public LayerBn<nn::Conv<N>, nn::BatchNorm<N>, ConvNdOptions> {
 public:
  using LayerBn<nn::Conv<N>, nn::BatchNorm<N>, ConvNdOptions>::LayerBn;
  static std::shared_ptr<Module> from_float(const Module& module);
};
using ConvBn1d = ConvBn<1>;
using ConvBn2d = ConvBn<2>;
using ConvBn3d = ConvBn<3>;
extern template class ConvBn<1>;
extern template class ConvBn<2>;
extern template class ConvBn<3>;

class LinearBn1d : public LayerBn<nn::Linear, nn::BatchNorm1d, LinearOptions> {
 public:
  using LayerBn::LayerBn;
  static std::shared_ptr<Module> from_float(const Module& module);
};

template <int N>
class ConvBnReLU : public ConvBn<N> {
 public:
  using ConvBn<N>::ConvBn;
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
};
using ConvBnReLU1d = ConvBnReLU<1>;
using ConvBnReLU2d = ConvBnReLU<2>;
using ConvBnReLU3d = ConvBnReLU<3>;
extern template class ConvBnReLU<1>;
extern template class ConvBnReLU<2>;
extern template class ConvBnReLU<3>;

/// freeze_bn_stats() and update_bn_stats() on every such module below `model`, itself included.
void freeze_bn_stats(Module& model);
void update_bn_stats(Module& model);

}  // namespace quanta::nn::intrinsic::qat
