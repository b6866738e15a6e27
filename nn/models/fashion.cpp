#include "quanta/nn/models/fashion.h"

namespace quanta::nn::models {
namespace {

Conv2dOptions conv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                   std::int64_t stride = 1, std::int64_t groups = 1) {
  return {.in_channels = in_channels,
          .out_channels = out_channels,
          .kernel_size = {kernel_size},
          .stride = {stride},
          .padding = {kernel_size / 2},
          .groups = groups,
          .bias = false};
}

BatchNorm2dOptions norm(std::int64_t channels) { return {.num_features = channels}; }

}  // namespace

FashionBlock::FashionBlock(std::int64_t in_channels, std::int64_t out_channels,
                           std::int64_t stride) {
  register_module("conv1", conv1, conv(in_channels, out_channels, 3, stride));
  register_module("bn1", bn1, norm(out_channels));
  register_module("relu1", relu1);
  register_module("conv2", conv2, conv(out_channels, out_channels, 3));
  register_module("bn2", bn2, norm(out_channels));
  if (stride != 1 || in_channels != out_channels) {
    register_module("down", down);
    down->push_back(make_module<Conv2d>(conv(in_channels, out_channels, 1, stride)));
    down->push_back(make_module<BatchNorm2d>(norm(out_channels)));
  }
  register_module("add", add);
  register_module("relu2", relu2);
}

Tensor FashionBlock::forward(const Tensor& x) const {
  const Tensor y = bn2(conv2(relu1(bn1(conv1(x)))));
  return relu2(add->add(y, down ? down(x) : x));
}

FashionResNet::FashionResNet(std::int64_t num_classes) {
  register_module("quant", quant);
  register_module("conv1", conv1, conv(1, 16, 3));
  register_module("bn1", bn1, norm(16));
  register_module("relu", relu);
  register_module("layer1", layer1, make_module<FashionBlock>(16, 16, 1),
                  make_module<FashionBlock>(16, 16, 1));
  register_module("layer2", layer2, make_module<FashionBlock>(16, 32, 2),
                  make_module<FashionBlock>(32, 32, 1));
  register_module("layer3", layer3, make_module<FashionBlock>(32, 64, 2),
                  make_module<FashionBlock>(64, 64, 1));
  register_module("pool", pool, Dims{1});
  register_module("fc", fc, LinearOptions{.in_features = 64, .out_features = num_classes});
  register_module("dequant", dequant);
}

Tensor FashionResNet::forward(const Tensor& x) const {
  const Tensor y = relu(bn1(conv1(quant(x))));
  return dequant(fc(pool(layer3(layer2(layer1(y)))).flatten(1)));
}

FashionInvertedResidual::FashionInvertedResidual(std::int64_t in_channels,
                                                 std::int64_t out_channels, std::int64_t stride,
                                                 std::int64_t expansion) {
  const std::int64_t hidden = in_channels * expansion;
  register_module("expand", expand, conv(in_channels, hidden, 1));
  register_module("bn1", bn1, norm(hidden));
  register_module("relu1", relu1);
  register_module("depthwise", depthwise, conv(hidden, hidden, 3, stride, hidden));
  register_module("bn2", bn2, norm(hidden));
  register_module("relu2", relu2);
  register_module("project", project, conv(hidden, out_channels, 1));
  register_module("bn3", bn3, norm(out_channels));
  if (stride == 1 && in_channels == out_channels) register_module("add", add);
}

Tensor FashionInvertedResidual::forward(const Tensor& x) const {
  const Tensor y = relu2(bn2(depthwise(relu1(bn1(expand(x))))));
  const Tensor z = bn3(project(y));
  return add ? add->add(z, x) : z;
}

FashionMobileNet::FashionMobileNet(std::int64_t num_classes) {
  register_module("quant", quant);
  register_module("conv1", conv1, conv(1, 16, 3));
  register_module("bn1", bn1, norm(16));
  register_module("relu", relu);
  register_module("blocks", blocks, make_module<FashionInvertedResidual>(16, 24, 2),
                  make_module<FashionInvertedResidual>(24, 24, 1),
                  make_module<FashionInvertedResidual>(24, 40, 2),
                  make_module<FashionInvertedResidual>(40, 40, 1),
                  make_module<FashionInvertedResidual>(40, 40, 1));
  register_module("conv2", conv2, conv(40, 128, 1));
  register_module("bn2", bn2, norm(128));
  register_module("relu2", relu2);
  register_module("pool", pool, Dims{1});
  register_module("fc", fc, LinearOptions{.in_features = 128, .out_features = num_classes});
  register_module("dequant", dequant);
}

Tensor FashionMobileNet::forward(const Tensor& x) const {
  Tensor y = relu(bn1(conv1(quant(x))));
  y = relu2(bn2(conv2(blocks(y))));
  return dequant(fc(pool(y).flatten(1)));
}

std::vector<std::vector<std::string>> fusion_groups(const FashionResNet& model) {
  std::vector<std::vector<std::string>> groups{{"conv1", "bn1", "relu"}};
  for (const Module::NamedModule& entry : model.named_modules()) {
    const auto* block = dynamic_cast<const FashionBlock*>(entry.module);
    if (block == nullptr) continue;
    const std::string prefix = entry.path + ".";
    groups.push_back({prefix + "conv1", prefix + "bn1", prefix + "relu1"});
    groups.push_back({prefix + "conv2", prefix + "bn2"});
    if (block->down) groups.push_back({prefix + "down.0", prefix + "down.1"});
  }
  return groups;
}

std::vector<std::vector<std::string>> fusion_groups(const FashionMobileNet& model) {
  std::vector<std::vector<std::string>> groups{{"conv1", "bn1"}, {"conv2", "bn2"}};
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (dynamic_cast<const FashionInvertedResidual*>(entry.module) == nullptr) continue;
    const std::string prefix = entry.path + ".";
    groups.push_back({prefix + "expand", prefix + "bn1"});
    groups.push_back({prefix + "depthwise", prefix + "bn2"});
    groups.push_back({prefix + "project", prefix + "bn3"});
  }
  return groups;
}

}  // namespace quanta::nn::models
