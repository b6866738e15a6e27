#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Networks with torchvision's child names, so that its checkpoints load as they are.
namespace quanta::nn::models {

/// Two 3x3 convolutions and the addition; torchvision.models.quantization.resnet's
/// QuantizableBasicBlock.
struct BasicBlock : Module {
  static constexpr std::int64_t kExpansion = 1;
  Child<Conv2d> conv1, conv2;
  Child<BatchNorm2d> bn1, bn2;
  Child<ReLU> relu;
  /// Convolution and batch norm, where the block changes sizes.
  Child<Sequential> downsample;
  Child<FloatFunctional> add_relu;

  BasicBlock(std::int64_t in_channels, std::int64_t channels, std::int64_t stride);
  Tensor forward(const Tensor& x) const override;
};

/// 1x1, 3x3 and 1x1 convolutions and the addition; QuantizableBottleneck. The stride is that of the
/// 3x3 convolution.
struct Bottleneck : Module {
  static constexpr std::int64_t kExpansion = 4;
  Child<Conv2d> conv1, conv2, conv3;
  Child<BatchNorm2d> bn1, bn2, bn3;
  Child<ReLU> relu1, relu2;
  Child<Sequential> downsample;
  Child<FloatFunctional> skip_add_relu;

  Bottleneck(std::int64_t in_channels, std::int64_t channels, std::int64_t stride);
  Tensor forward(const Tensor& x) const override;
};

enum class ResNetBlock : std::uint8_t { Basic, Bottleneck };

struct ResNetOptions {
  ResNetBlock block = ResNetBlock::Basic;
  /// Blocks in each of the four stages.
  std::array<std::int64_t, 4> layers{2, 2, 2, 2};
  std::int64_t num_classes = 1000;
};

/// x [N, 3, H, W] Float32, result [N, num_classes]. With QuantStub and DeQuantStub.
struct ResNet : Module {
  Child<QuantStub> quant;
  Child<Conv2d> conv1;
  Child<BatchNorm2d> bn1;
  Child<ReLU> relu;
  Child<MaxPool2d> maxpool;
  Child<Sequential> layer1, layer2, layer3, layer4;
  Child<AdaptiveAvgPool2d> avgpool;
  Child<Linear> fc;
  Child<DeQuantStub> dequant;

  /// Throws ArgumentError for a stage without blocks.
  explicit ResNet(const ResNetOptions& options);
  Tensor forward(const Tensor& x) const override;
};

ResNet resnet18(std::int64_t num_classes = 1000);
ResNet resnet34(std::int64_t num_classes = 1000);
ResNet resnet50(std::int64_t num_classes = 1000);

/// What to give to fuse_modules: every convolution with its batch norm and ReLU.
std::vector<std::vector<std::string>> fusion_groups(const ResNet& model);

}  // namespace quanta::nn::models
