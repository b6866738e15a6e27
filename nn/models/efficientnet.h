#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/models/squeeze_excitation.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// EfficientNet-B0 (Tan, Le: "EfficientNet", 2019) under torchvision's names.
namespace quanta::nn::models {

/// Scales each channel of x by a number in (0, 1) that follows from the channels' averages;
/// torchvision.ops.SqueezeExcitation with SiLU and Sigmoid.
struct EfficientNetSqueeze : ChannelGate<SiLU, Sigmoid> {
  using ChannelGate::ChannelGate;
};

/// What one block of EfficientNet is made of.
struct MBConvOptions {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t expand_ratio = 1;
  std::int64_t kernel_size = 3;
  std::int64_t stride = 1;
};

/// Expand 1x1, depthwise, squeeze-and-excitation, project 1x1, added to the input where sizes
/// allow; torchvision's MBConv without the random omission of blocks that training uses.
struct MBConv : Module {
  Child<Sequential> block;
  /// Only in blocks that add.
  Child<FloatFunctional> skip_add;

  explicit MBConv(const MBConvOptions& options);
  Tensor forward(const Tensor& x) const override;
};

/// x [N, 3, H, W] Float32, result [N, num_classes]. With QuantStub and DeQuantStub; torchvision's
/// names ("features.4.0.block.2.fc1.weight", "classifier.1.weight").
struct EfficientNet : Module {
  Child<QuantStub> quant;
  Child<Sequential> features;
  Child<AdaptiveAvgPool2d> avgpool;
  Child<Sequential> classifier;
  Child<DeQuantStub> dequant;

  explicit EfficientNet(std::int64_t num_classes = 1000);
  Tensor forward(const Tensor& x) const override;
};

EfficientNet efficientnet_b0(std::int64_t num_classes = 1000);

/// What to give to fuse_modules: convolutions with their batch norms.
std::vector<std::vector<std::string>> fusion_groups(const EfficientNet& model);

}  // namespace quanta::nn::models
