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

namespace quanta::nn::models {

enum class MobileNetV3Size : std::uint8_t { Large, Small };

struct MobileNetV3Options {
  MobileNetV3Size size = MobileNetV3Size::Large;
  std::int64_t num_classes = 1000;
  double width_mult = 1.0;
  /// Half the channels from the last stride on.
  bool reduced_tail = false;
  /// Dilation instead of the last stride.
  bool dilated = false;
  double dropout = 0.2;
};

/// Scales each channel of x by a number in [0, 1] that follows from the channels' averages;
/// torchvision.models.quantization.mobilenetv3's QuantizableSqueezeExcitation.
struct SqueezeExcitation : ChannelGate<ReLU, Hardsigmoid> {
  using ChannelGate::ChannelGate;
};

/// What one block of MobileNetV3 is made of.
struct MobileNetV3BlockOptions {
  std::int64_t in_channels = 0;
  std::int64_t expanded_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel_size = 3;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  bool squeeze_excitation = false;
  /// Hardswish after the batch norms, otherwise ReLU.
  bool hardswish = false;
};

/// Expand 1x1, depthwise, squeeze-and-excitation, project 1x1, added to the input where sizes
/// allow; torchvision's QuantizableInvertedResidual.
struct MobileNetV3Block : Module {
  Child<Sequential> block;
  /// Only in blocks that add (elsewhere it would never be calibrated).
  Child<FloatFunctional> skip_add;

  explicit MobileNetV3Block(const MobileNetV3BlockOptions& options);
  Tensor forward(const Tensor& x) const override;

 protected:
  void load_state(StateReader& reader) override;
};

/// x [N, 3, H, W] Float32, result [N, num_classes]. With QuantStub and DeQuantStub; torchvision's
/// names ("features.4.block.2.fc1.weight", "classifier.3.weight").
struct MobileNetV3 : Module {
  Child<QuantStub> quant;
  Child<Sequential> features;
  Child<AdaptiveAvgPool2d> avgpool;
  Child<Sequential> classifier;
  Child<DeQuantStub> dequant;

  /// Throws ArgumentError for a width_mult that is not more than 0.
  explicit MobileNetV3(const MobileNetV3Options& options = {});
  Tensor forward(const Tensor& x) const override;
};

MobileNetV3 mobilenet_v3_large(std::int64_t num_classes = 1000);
MobileNetV3 mobilenet_v3_small(std::int64_t num_classes = 1000);

/// What to give to fuse_modules: convolutions with their batch norms, and with ReLU where that is
/// the activation; in squeeze-and-excitation fc1 with its ReLU.
std::vector<std::vector<std::string>> fusion_groups(const MobileNetV3& model);

}  // namespace quanta::nn::models
