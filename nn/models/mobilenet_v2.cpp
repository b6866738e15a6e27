#include "quanta/nn/models/mobilenet_v2.h"

#include <algorithm>
#include <array>
#include <typeinfo>

#include "quanta/ops/pooling.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::models {
namespace {

// torchvision's rounding of channel counts: to a multiple of 8, never more than 10 % down.
std::int64_t make_divisible(double value) {
  constexpr std::int64_t kDivisor = 8;
  const auto rounded =
      static_cast<std::int64_t>(value + static_cast<double>(kDivisor) / 2.0) / kDivisor * kDivisor;
  const std::int64_t result = std::max(kDivisor, rounded);
  return static_cast<double>(result) < 0.9 * value ? result + kDivisor : result;
}

std::shared_ptr<Module> conv(std::int64_t in_channels, std::int64_t out_channels,
                             std::int64_t kernel_size, std::int64_t stride, std::int64_t groups) {
  return make_module<Conv2d>(Conv2dOptions{.in_channels = in_channels,
                                           .out_channels = out_channels,
                                           .kernel_size = {kernel_size},
                                           .stride = {stride},
                                           .padding = {kernel_size / 2},
                                           .groups = groups,
                                           .bias = false});
}

std::shared_ptr<Module> batch_norm(std::int64_t channels) {
  return make_module<BatchNorm2d>(BatchNorm2dOptions{.num_features = channels});
}

std::shared_ptr<Module> conv_norm_activation(std::int64_t in_channels, std::int64_t out_channels,
                                             std::int64_t kernel_size, std::int64_t stride,
                                             std::int64_t groups, MobileNetActivation activation) {
  auto sequence = make_module<Sequential>();
  sequence->push_back(conv(in_channels, out_channels, kernel_size, stride, groups));
  sequence->push_back(batch_norm(out_channels));
  if (activation == MobileNetActivation::ReLU6) {
    sequence->push_back(make_module<ReLU6>());
  } else {
    sequence->push_back(make_module<ReLU>());
  }
  return sequence;
}

struct Stage {
  std::int64_t expand_ratio, channels, blocks, stride;
};
// Table 2 of "MobileNetV2: Inverted Residuals and Linear Bottlenecks".
constexpr std::array<Stage, 7> kStages = {{{1, 16, 1, 1},
                                           {6, 24, 2, 2},
                                           {6, 32, 3, 2},
                                           {6, 64, 4, 2},
                                           {6, 96, 3, 1},
                                           {6, 160, 3, 2},
                                           {6, 320, 1, 1}}};

}  // namespace

InvertedResidual::InvertedResidual(std::int64_t in_channels, std::int64_t out_channels,
                                   std::int64_t stride, std::int64_t expand_ratio,
                                   MobileNetActivation activation) {
  const std::int64_t hidden = in_channels * expand_ratio;
  register_module("conv", conv);
  if (expand_ratio != 1) {
    conv->push_back(conv_norm_activation(in_channels, hidden, 1, 1, 1, activation));
  }
  conv->push_back(conv_norm_activation(hidden, hidden, 3, stride, hidden, activation));
  conv->push_back(models::conv(hidden, out_channels, 1, 1, 1));
  conv->push_back(batch_norm(out_channels));
  if (stride == 1 && in_channels == out_channels) register_module("skip_add", skip_add);
}

Tensor InvertedResidual::forward(const Tensor& x) const {
  return skip_add ? skip_add->add(x, conv(x)) : conv(x);
}

MobileNetV2::MobileNetV2(const MobileNetV2Options& options) {
  QUANTA_CHECK(options.width_mult > 0.0, "MobileNetV2: width_mult: expected more than 0, got {}",
               options.width_mult);
  register_module("features", features);
  std::int64_t channels = make_divisible(32.0 * options.width_mult);
  features->push_back(conv_norm_activation(3, channels, 3, 2, 1, options.activation));
  for (const Stage& stage : kStages) {
    const std::int64_t out_channels =
        make_divisible(static_cast<double>(stage.channels) * options.width_mult);
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      features->push_back(make_module<InvertedResidual>(channels, out_channels,
                                                        i == 0 ? stage.stride : 1,
                                                        stage.expand_ratio, options.activation));
      channels = out_channels;
    }
  }
  const std::int64_t last = make_divisible(1280.0 * std::max(1.0, options.width_mult));
  features->push_back(conv_norm_activation(channels, last, 1, 1, 1, options.activation));
  register_module("classifier", classifier);
  classifier->push_back(make_module<Dropout>(options.dropout));
  classifier->push_back(
      make_module<Linear>(LinearOptions{.in_features = last, .out_features = options.num_classes}));
  register_module("quant", quant);
  register_module("dequant", dequant);
}

Tensor MobileNetV2::forward(const Tensor& x) const {
  const Tensor y = features(quant(x));
  return dequant(classifier(adaptive_avg_pool2d(y, {1, 1}).flatten(1)));
}

std::vector<std::vector<std::string>> fusion_groups(const MobileNetV2& model) {
  // In every sequence: a convolution, the batch norm after it, and a ReLU after that.
  std::vector<std::vector<std::string>> groups;
  for (const Module::NamedModule& entry : model.named_modules()) {
    const auto* sequence = dynamic_cast<const Sequential*>(entry.module);
    if (sequence == nullptr) continue;
    for (std::size_t i = 0; i + 1 < sequence->size(); ++i) {
      const Module& first = (*sequence)[i];
      const Module& second = (*sequence)[i + 1];
      if (typeid(first) != typeid(Conv2d) || typeid(second) != typeid(BatchNorm2d)) continue;
      const std::string prefix = entry.path + ".";
      std::vector<std::string> group{prefix + std::to_string(i), prefix + std::to_string(i + 1)};
      if (i + 2 < sequence->size()) {
        const Module& third = (*sequence)[i + 2];
        if (typeid(third) == typeid(ReLU)) group.push_back(prefix + std::to_string(i + 2));
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace quanta::nn::models
