#pragma once

// Small networks whose files the seeds are, and into which targets load changed ones.

#include <memory>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/random.h"

namespace quanta::fuzz {

/// Layers of several kinds: images [batch, 3, 4, 4] to [4, batch, 3].
struct Network : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv;
  nn::Child<nn::BatchNorm2d> bn;
  nn::Child<nn::ReLU> relu;
  nn::Child<nn::DeQuantStub> dequant;
  nn::Child<nn::LSTM> lstm;
  nn::Child<nn::Linear> fc;

  Network() {
    register_module("quant", quant);
    register_module(
        "conv", conv,
        nn::ConvNdOptions{.in_channels = 3, .out_channels = 4, .kernel_size = {3}, .padding = {1}});
    register_module("bn", bn, nn::BatchNormOptions{.num_features = 4});
    register_module("relu", relu);
    register_module("dequant", dequant);
    register_module("lstm", lstm, nn::RecurrentOptions{.input_size = 16, .hidden_size = 5});
    register_module("fc", fc, nn::LinearOptions{.in_features = 5, .out_features = 3});
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor y = relu(bn(conv(quant(x))));
    return dequant(fc(lstm(y.reshape({4, x.size(0), 16}))));
  }
};

inline std::shared_ptr<Network> network() {
  manual_seed(1);
  return nn::make_module<Network>();
}

inline Tensor images() {
  manual_seed(2);
  return randn({2, 3, 4, 4});
}

}  // namespace quanta::fuzz
