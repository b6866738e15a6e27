#include "quanta/nn/models/resnet.h"

#include "quanta/runtime/check.h"

namespace quanta::nn::models {
namespace {

Conv2dOptions conv1x1(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride) {
  return {.in_channels = in_channels,
          .out_channels = out_channels,
          .kernel_size = {1},
          .stride = {stride},
          .bias = false};
}

Conv2dOptions conv3x3(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stride) {
  return {.in_channels = in_channels,
          .out_channels = out_channels,
          .kernel_size = {3},
          .stride = {stride},
          .padding = {1},
          .bias = false};
}

BatchNorm2dOptions norm(std::int64_t channels) { return {.num_features = channels}; }

void push_downsample(Sequential& sequence, std::int64_t in_channels, std::int64_t out_channels,
                     std::int64_t stride) {
  sequence.push_back(make_module<Conv2d>(conv1x1(in_channels, out_channels, stride)));
  sequence.push_back(make_module<BatchNorm2d>(norm(out_channels)));
}

// One stage; answers the channels that it gives.
template <typename Block>
std::int64_t push_stage(Sequential& stage, std::int64_t in_channels, std::int64_t channels,
                        std::int64_t blocks, std::int64_t stride) {
  for (std::int64_t i = 0; i < blocks; ++i) {
    stage.push_back(make_module<Block>(i == 0 ? in_channels : channels * Block::kExpansion,
                                       channels, i == 0 ? stride : 1));
  }
  return channels * Block::kExpansion;
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t in_channels, std::int64_t channels, std::int64_t stride) {
  register_module("conv1", conv1, conv3x3(in_channels, channels, stride));
  register_module("bn1", bn1, norm(channels));
  register_module("relu", relu);
  register_module("conv2", conv2, conv3x3(channels, channels, 1));
  register_module("bn2", bn2, norm(channels));
  if (stride != 1 || in_channels != channels) {
    register_module("downsample", downsample);
    push_downsample(*downsample.operator->(), in_channels, channels, stride);
  }
  register_module("add_relu", add_relu);
}

Tensor BasicBlock::forward(const Tensor& x) const {
  const Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
  return add_relu->add_relu(y, downsample ? downsample(x) : x);
}

Bottleneck::Bottleneck(std::int64_t in_channels, std::int64_t channels, std::int64_t stride) {
  const std::int64_t out_channels = channels * kExpansion;
  register_module("conv1", conv1, conv1x1(in_channels, channels, 1));
  register_module("bn1", bn1, norm(channels));
  register_module("conv2", conv2, conv3x3(channels, channels, stride));
  register_module("bn2", bn2, norm(channels));
  register_module("conv3", conv3, conv1x1(channels, out_channels, 1));
  register_module("bn3", bn3, norm(out_channels));
  if (stride != 1 || in_channels != out_channels) {
    register_module("downsample", downsample);
    push_downsample(*downsample.operator->(), in_channels, out_channels, stride);
  }
  register_module("skip_add_relu", skip_add_relu);
  register_module("relu1", relu1);
  register_module("relu2", relu2);
}

Tensor Bottleneck::forward(const Tensor& x) const {
  const Tensor y = bn3(conv3(relu2(bn2(conv2(relu1(bn1(conv1(x))))))));
  return skip_add_relu->add_relu(y, downsample ? downsample(x) : x);
}

ResNet::ResNet(const ResNetOptions& options) {
  register_module("conv1", conv1,
                  Conv2dOptions{.in_channels = 3,
                                .out_channels = 64,
                                .kernel_size = {7},
                                .stride = {2},
                                .padding = {3},
                                .bias = false});
  register_module("bn1", bn1, norm(64));
  register_module("relu", relu);
  register_module("maxpool", maxpool,
                  MaxPool2dOptions{.kernel_size = {3}, .stride = {2}, .padding = {1}});
  Child<Sequential>* const stages[] = {&layer1, &layer2, &layer3, &layer4};
  std::int64_t channels = 64;
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    QUANTA_CHECK(options.layers[i] >= 1, "ResNet: layers: expected at least 1 block, got {}",
                 options.layers[i]);
    register_module("layer" + std::to_string(i + 1), *stages[i]);
    Sequential& stage = *stages[i]->operator->();
    const std::int64_t width = std::int64_t{64} << i;
    const std::int64_t stride = i == 0 ? 1 : 2;
    channels = options.block == ResNetBlock::Basic
                   ? push_stage<BasicBlock>(stage, channels, width, options.layers[i], stride)
                   : push_stage<Bottleneck>(stage, channels, width, options.layers[i], stride);
  }
  register_module("avgpool", avgpool, Dims{1, 1});
  register_module("fc", fc,
                  LinearOptions{.in_features = channels, .out_features = options.num_classes});
  register_module("quant", quant);
  register_module("dequant", dequant);
}

Tensor ResNet::forward(const Tensor& x) const {
  Tensor y = maxpool(relu(bn1(conv1(quant(x)))));
  y = layer4(layer3(layer2(layer1(y))));
  return dequant(fc(avgpool(y).flatten(1)));
}

ResNet resnet18(std::int64_t num_classes) {
  return ResNet({.block = ResNetBlock::Basic, .layers = {2, 2, 2, 2}, .num_classes = num_classes});
}
ResNet resnet34(std::int64_t num_classes) {
  return ResNet({.block = ResNetBlock::Basic, .layers = {3, 4, 6, 3}, .num_classes = num_classes});
}
ResNet resnet50(std::int64_t num_classes) {
  return ResNet(
      {.block = ResNetBlock::Bottleneck, .layers = {3, 4, 6, 3}, .num_classes = num_classes});
}

std::vector<std::vector<std::string>> fusion_groups(const ResNet& model) {
  std::vector<std::vector<std::string>> groups{{"conv1", "bn1", "relu"}};
  for (const Module::NamedModule& entry : model.named_modules()) {
    const std::string prefix = entry.path + ".";
    bool has_downsample = false;
    if (const auto* basic = dynamic_cast<const BasicBlock*>(entry.module)) {
      groups.push_back({prefix + "conv1", prefix + "bn1", prefix + "relu"});
      groups.push_back({prefix + "conv2", prefix + "bn2"});
      has_downsample = static_cast<bool>(basic->downsample);
    } else if (const auto* bottleneck = dynamic_cast<const Bottleneck*>(entry.module)) {
      groups.push_back({prefix + "conv1", prefix + "bn1", prefix + "relu1"});
      groups.push_back({prefix + "conv2", prefix + "bn2", prefix + "relu2"});
      groups.push_back({prefix + "conv3", prefix + "bn3"});
      has_downsample = static_cast<bool>(bottleneck->downsample);
    }
    if (has_downsample) groups.push_back({prefix + "downsample.0", prefix + "downsample.1"});
  }
  return groups;
}

}  // namespace quanta::nn::models
