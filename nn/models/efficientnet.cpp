#include "quanta/nn/models/efficientnet.h"

#include <algorithm>
#include <memory>

#include "quanta/nn/models/detail/conv_norm.h"

namespace quanta::nn::models {
namespace {

constexpr BatchNorm2dOptions kNorm{};

// Table 1 of the paper: the first block of a stage changes channels and size.
struct Stage {
  MBConvOptions first;
  int blocks;
};
constexpr Stage kStages[] = {
    {{32, 16, 1, 3, 1}, 1},   {{16, 24, 6, 3, 2}, 2},  {{24, 40, 6, 5, 2}, 2},
    {{40, 80, 6, 3, 2}, 3},   {{80, 112, 6, 5, 1}, 3}, {{112, 192, 6, 5, 2}, 4},
    {{192, 320, 6, 3, 1}, 1},
};
constexpr std::int64_t kLastChannels = 1280;

std::shared_ptr<Sequential> conv_norm_silu(const Conv2dOptions& conv) {
  return detail::conv_norm_activation(conv, kNorm, make_module<SiLU>());
}

std::shared_ptr<Sequential> make_stage(const Stage& stage) {
  auto blocks = make_module<Sequential>();
  MBConvOptions options = stage.first;
  for (int i = 0; i < stage.blocks; ++i) {
    blocks->push_back(make_module<MBConv>(options));
    options.in_channels = options.out_channels;
    options.stride = 1;
  }
  return blocks;
}

}  // namespace

MBConv::MBConv(const MBConvOptions& options) {
  const std::int64_t in = options.in_channels;
  const std::int64_t out = options.out_channels;
  const std::int64_t expanded = in * options.expand_ratio;
  register_module("block", block);
  if (expanded != in) {
    block->push_back(
        conv_norm_silu({.in_channels = in, .out_channels = expanded, .kernel_size = {1}}));
  }
  block->push_back(conv_norm_silu({.in_channels = expanded,
                                   .out_channels = expanded,
                                   .kernel_size = {options.kernel_size},
                                   .stride = {options.stride},
                                   .groups = expanded}));
  // A quarter of the channels before they were expanded.
  block->push_back(make_module<EfficientNetSqueeze>(expanded, std::max<std::int64_t>(1, in / 4)));
  block->push_back(detail::conv_norm_activation(
      {.in_channels = expanded, .out_channels = out, .kernel_size = {1}}, kNorm, nullptr));
  if (options.stride == 1 && in == out) register_module("skip_add", skip_add);
}

Tensor MBConv::forward(const Tensor& x) const {
  return skip_add ? skip_add->add(block(x), x) : block(x);
}

EfficientNet::EfficientNet(std::int64_t num_classes) {
  register_module("features", features);
  features->push_back(conv_norm_silu({.in_channels = 3,
                                      .out_channels = kStages[0].first.in_channels,
                                      .kernel_size = {3},
                                      .stride = {2}}));
  for (const Stage& stage : kStages) features->push_back(make_stage(stage));
  features->push_back(conv_norm_silu({.in_channels = std::end(kStages)[-1].first.out_channels,
                                      .out_channels = kLastChannels,
                                      .kernel_size = {1}}));
  register_module("avgpool", avgpool, Dims{1});
  register_module("classifier", classifier);
  classifier->push_back(make_module<Dropout>(0.2));
  classifier->push_back(make_module<Linear>(
      LinearOptions{.in_features = kLastChannels, .out_features = num_classes}));
  register_module("quant", quant);
  register_module("dequant", dequant);
}

Tensor EfficientNet::forward(const Tensor& x) const {
  return dequant(classifier(avgpool(features(quant(x))).flatten(1)));
}

EfficientNet efficientnet_b0(std::int64_t num_classes) { return EfficientNet(num_classes); }

std::vector<std::vector<std::string>> fusion_groups(const EfficientNet& model) {
  return detail::conv_norm_groups(model);
}

}  // namespace quanta::nn::models
