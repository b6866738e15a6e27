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
#include "quanta/nn/norm.h"
#include "quanta/nn/stubs.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::models {

/// What follows the batch norms. torchvision trains with ReLU6 and puts ReLU in its place when
/// it quantizes: fuse_modules joins ReLU with the convolution, ReLU6 stays a step of its own.
enum class MobileNetActivation : std::uint8_t { ReLU6, ReLU };

struct MobileNetV2Options {
  std::int64_t num_classes = 1000;
  double width_mult = 1.0;
  MobileNetActivation activation = MobileNetActivation::ReLU6;
  double dropout = 0.2;
};

/// Expand 1x1, depthwise 3x3, project 1x1, added to the input where sizes allow;
/// torchvision.models.quantization.mobilenetv2's QuantizableInvertedResidual.
struct InvertedResidual : Module {
  Child<Sequential> conv;
  /// Only in blocks that add (elsewhere it would never be calibrated).
  Child<FloatFunctional> skip_add;

  InvertedResidual(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride,
                   std::int64_t expand_ratio, MobileNetActivation activation);
  Tensor forward(const Tensor& x) const override;

 protected:
  void load_state(StateReader& reader) override;
};

/// x [N, 3, H, W] Float32, result [N, num_classes]. With QuantStub and DeQuantStub; torchvision's
/// names ("features.1.conv.0.0.weight", "classifier.1.weight").
struct MobileNetV2 : Module {
  Child<QuantStub> quant;
  Child<Sequential> features;
  Child<Sequential> classifier;
  Child<DeQuantStub> dequant;

  explicit MobileNetV2(const MobileNetV2Options& options = {});
  Tensor forward(const Tensor& x) const override;
};

/// What to give to fuse_modules: convolutions with their batch norms, and with ReLU where that
/// is the activation.
std::vector<std::vector<std::string>> fusion_groups(const MobileNetV2& model);

}  // namespace quanta::nn::models
