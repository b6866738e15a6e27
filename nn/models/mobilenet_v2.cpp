#include "quanta/nn/models/mobilenet_v2.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "quanta/nn/models/detail/conv_norm.h"
#include "quanta/ops/pooling.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::models {
namespace {

std::shared_ptr<Sequential> conv_norm_activation(const Conv2dOptions& conv,
                                                 MobileNetActivation activation) {
  std::shared_ptr<Module> after;
  if (activation == MobileNetActivation::ReLU6) {
    after = make_module<ReLU6>();
  } else {
    after = make_module<ReLU>();
  }
  return detail::conv_norm_activation(conv, {}, std::move(after));
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
    conv->push_back(conv_norm_activation(
        {.in_channels = in_channels, .out_channels = hidden, .kernel_size = {1}}, activation));
  }
  conv->push_back(conv_norm_activation({.in_channels = hidden,
                                        .out_channels = hidden,
                                        .kernel_size = {3},
                                        .stride = {stride},
                                        .groups = hidden},
                                       activation));
  conv->push_back(
      detail::same_conv({.in_channels = hidden, .out_channels = out_channels, .kernel_size = {1}}));
  conv->push_back(make_module<BatchNorm2d>(BatchNorm2dOptions{.num_features = out_channels}));
  if (stride == 1 && in_channels == out_channels) register_module("skip_add", skip_add);
}

Tensor InvertedResidual::forward(const Tensor& x) const {
  return skip_add ? skip_add->add(x, conv(x)) : conv(x);
}

void InvertedResidual::load_state(StateReader& reader) {
  if (!skip_add) detail::read_unused_skip_add(reader);
}

MobileNetV2::MobileNetV2(const MobileNetV2Options& options) {
  QUANTA_CHECK(options.width_mult > 0.0, "MobileNetV2: width_mult: expected more than 0, got {}",
               options.width_mult);
  register_module("features", features);
  std::int64_t channels = detail::make_divisible(32.0 * options.width_mult);
  features->push_back(conv_norm_activation(
      {.in_channels = 3, .out_channels = channels, .kernel_size = {3}, .stride = {2}},
      options.activation));
  for (const Stage& stage : kStages) {
    const std::int64_t out_channels =
        detail::make_divisible(static_cast<double>(stage.channels) * options.width_mult);
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      features->push_back(make_module<InvertedResidual>(channels, out_channels,
                                                        i == 0 ? stage.stride : 1,
                                                        stage.expand_ratio, options.activation));
      channels = out_channels;
    }
  }
  const std::int64_t last = detail::make_divisible(1280.0 * std::max(1.0, options.width_mult));
  features->push_back(conv_norm_activation(
      {.in_channels = channels, .out_channels = last, .kernel_size = {1}}, options.activation));
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
  return detail::conv_norm_groups(model);
}

}  // namespace quanta::nn::models
