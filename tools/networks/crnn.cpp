#include "crnn.h"

#include <optional>

#include "quanta/ops/shape.h"

namespace quanta::networks {
namespace {

nn::Conv2dOptions same(std::int64_t in, std::int64_t out, bool bias = true) {
  return {.in_channels = in, .out_channels = out, .kernel_size = {3}, .padding = {1}, .bias = bias};
}

}  // namespace

Crnn::Crnn(std::int64_t num_classes) {
  register_module("quant", quant);
  register_module("conv1", conv1, same(1, 64));
  register_module("conv2", conv2, same(64, 128));
  // No bias before a batch norm.
  register_module("conv3", conv3, same(128, 256, false));
  register_module("conv4", conv4, same(256, 256));
  register_module("conv5", conv5, same(256, 512, false));
  register_module("conv6", conv6, same(512, 512));
  register_module("conv7", conv7,
                  {.in_channels = 512, .out_channels = 512, .kernel_size = {2}, .bias = false});
  register_module("bn3", bn3, {.num_features = 256});
  register_module("bn5", bn5, {.num_features = 512});
  register_module("bn7", bn7, {.num_features = 512});
  register_module("relu1", relu1);
  register_module("relu2", relu2);
  register_module("relu3", relu3);
  register_module("relu4", relu4);
  register_module("relu5", relu5);
  register_module("relu6", relu6);
  register_module("relu7", relu7);
  register_module("pool1", pool1, {.kernel_size = {2}});
  register_module("pool2", pool2, {.kernel_size = {2}});
  // Letters are narrow: the width stays.
  register_module("pool4", pool4, {.kernel_size = {2, 1}});
  register_module("pool6", pool6, {.kernel_size = {2, 1}});
  register_module("dequant", dequant);
  register_module("lstm", lstm,
                  {.input_size = 512,
                   .hidden_size = 256,
                   .num_layers = 2,
                   .batch_first = true,
                   .bidirectional = true});
  register_module("fc", fc, {.in_features = 512, .out_features = num_classes});
  lstm->set_qconfig(std::nullopt);
  fc->set_qconfig(std::nullopt);
}

Tensor Crnn::forward(const Tensor& image) const {
  const Tensor low = pool2(relu2(conv2(pool1(relu1(conv1(quant(image)))))));
  const Tensor middle = pool4(relu4(conv4(relu3(bn3(conv3(low))))));
  const Tensor high = pool6(relu6(conv6(relu5(bn5(conv5(middle))))));
  const Tensor columns = dequant(relu7(bn7(conv7(high))));  // [N, 512, 1, steps]
  return fc(lstm(columns.permute({0, 3, 1, 2}).flatten(2)));
}

std::vector<std::vector<std::string>> fusion_groups(const Crnn& /*model*/) {
  return {{"conv1", "relu1"},       {"conv2", "relu2"},        {"conv3", "bn3", "relu3"},
          {"conv4", "relu4"},       {"conv5", "bn5", "relu5"}, {"conv6", "relu6"},
          {"conv7", "bn7", "relu7"}};
}

}  // namespace quanta::networks
