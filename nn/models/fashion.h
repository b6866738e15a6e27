#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Two small networks for 28x28 grey images (Fashion-MNIST), x [N, 1, 28, 28] Float32, result
/// [N, num_classes]. Names as in the checkpoints fashion_resnet and fashion_mobilenet.
namespace quanta::nn::models {

/// Two 3x3 convolutions; the input is added, through a convolution where sizes change.
struct FashionBlock : Module {
  Child<Conv2d> conv1, conv2;
  Child<BatchNorm2d> bn1, bn2;
  Child<ReLU> relu1, relu2;
  /// Convolution and batch norm, where the block changes sizes.
  Child<Sequential> down;
  Child<FloatFunctional> add;

  FashionBlock(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride);
  Tensor forward(const Tensor& x) const override;
};

struct FashionResNet : Module {
  Child<QuantStub> quant;
  Child<Conv2d> conv1;
  Child<BatchNorm2d> bn1;
  Child<ReLU> relu;
  Child<Sequential> layer1, layer2, layer3;
  Child<AdaptiveAvgPool2d> pool;
  Child<Linear> fc;
  Child<DeQuantStub> dequant;

  explicit FashionResNet(std::int64_t num_classes = 10);
  Tensor forward(const Tensor& x) const override;
};

/// Expand 1x1, depthwise 3x3, project 1x1; the input is added where sizes allow.
struct FashionInvertedResidual : Module {
  Child<Conv2d> expand, depthwise, project;
  Child<BatchNorm2d> bn1, bn2, bn3;
  Child<ReLU6> relu1, relu2;
  /// Only in blocks that add (elsewhere it would never be calibrated).
  Child<FloatFunctional> add;

  FashionInvertedResidual(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride,
                          std::int64_t expansion = 4);
  Tensor forward(const Tensor& x) const override;
};

struct FashionMobileNet : Module {
  Child<QuantStub> quant;
  Child<Conv2d> conv1, conv2;
  Child<BatchNorm2d> bn1, bn2;
  Child<ReLU6> relu, relu2;
  Child<Sequential> blocks;
  Child<AdaptiveAvgPool2d> pool;
  Child<Linear> fc;
  Child<DeQuantStub> dequant;

  explicit FashionMobileNet(std::int64_t num_classes = 10);
  Tensor forward(const Tensor& x) const override;
};

/// What to give to fuse_modules: convolutions with their batch norms and ReLUs. ReLU6 stays a
/// module of its own, as in torch.
std::vector<std::vector<std::string>> fusion_groups(const FashionResNet& model);
std::vector<std::vector<std::string>> fusion_groups(const FashionMobileNet& model);

}  // namespace quanta::nn::models
