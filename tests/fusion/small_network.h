#pragma once

// A small residual network for the tests of the workflow.

#include <string>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::test {

struct SmallNetwork : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::BatchNorm2d> bn1, bn2;
  nn::Child<nn::ReLU> relu1, relu2;
  nn::Child<nn::FloatFunctional> skip;
  nn::Child<nn::AdaptiveAvgPool2d> pool;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;

  SmallNetwork() {
    register_module("quant", quant);
    register_module("conv1", conv1,
                    nn::Conv2dOptions{.in_channels = 3,
                                      .out_channels = 8,
                                      .kernel_size = {3},
                                      .padding = {1},
                                      .bias = false});
    register_module("bn1", bn1, nn::BatchNorm2dOptions{.num_features = 8});
    register_module("relu1", relu1);
    register_module(
        "conv2", conv2,
        nn::Conv2dOptions{.in_channels = 8, .out_channels = 8, .kernel_size = {3}, .padding = {1}});
    register_module("bn2", bn2, nn::BatchNorm2dOptions{.num_features = 8});
    register_module("skip", skip);
    register_module("relu2", relu2);
    register_module("pool", pool, Dims{1});
    register_module("fc", fc, nn::LinearOptions{.in_features = 8, .out_features = 5});
    register_module("dequant", dequant);
    randomize_statistics(*bn1.operator->());
    randomize_statistics(*bn2.operator->());
    eval();
  }

  static void randomize_statistics(nn::BatchNorm2d& norm) {
    Generator generator(5);
    norm.running_mean.copy_(randn({8}, generator));
    norm.running_var.copy_(rand({8}, generator));
    norm.weight.copy_(rand({8}, generator));
    norm.bias.copy_(randn({8}, generator));
  }

  Tensor forward(const Tensor& x) const override {
    const Tensor y = relu1(bn1(conv1(quant(x))));
    const Tensor z = relu2(skip->add(bn2(conv2(y)), y));
    return dequant(fc(pool(z).flatten(1)));
  }
};

inline const std::vector<std::vector<std::string>>& small_network_groups() {
  static const std::vector<std::vector<std::string>> groups{{"conv1", "bn1", "relu1"},
                                                            {"conv2", "bn2"}};
  return groups;
}

inline Tensor small_input(std::uint64_t seed, std::int64_t batch = 4) {
  Generator generator(seed);
  return randn({batch, 3, 9, 9}, generator);
}

inline SmallNetwork fused_network() {
  SmallNetwork net;
  fuse_modules(net, small_network_groups());
  return net;
}

inline SmallNetwork int8_of(const SmallNetwork& fused) {
  SmallNetwork prepared = prepare(fused, get_default_qconfig());
  for (std::uint64_t seed = 0; seed < 4; ++seed) prepared(small_input(seed));
  return convert(prepared);
}

/// Fused, prepared and calibrated.
inline SmallNetwork calibrated_network(const QConfig& qconfig = get_default_qconfig()) {
  SmallNetwork prepared = prepare(fused_network(), qconfig);
  for (std::uint64_t seed = 0; seed < 4; ++seed) prepared(small_input(seed));
  return prepared;
}

}  // namespace quanta::test
