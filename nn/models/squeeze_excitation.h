#pragma once

#include <cstdint>

#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/pooling.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::models {

/// Scales each channel of x by a number that follows from the channels' averages, under the names of
/// torchvision.ops.SqueezeExcitation: what the networks' blocks of that kind have in common.
template <typename Activation, typename ScaleActivation>
struct ChannelGate : Module {
  Child<AdaptiveAvgPool2d> avgpool;
  Child<Conv2d> fc1, fc2;
  Child<Activation> activation;
  Child<ScaleActivation> scale_activation;
  Child<FloatFunctional> skip_mul;

  ChannelGate(std::int64_t channels, std::int64_t squeeze_channels) {
    register_module("avgpool", avgpool, Dims{1});
    register_module(
        "fc1", fc1,
        Conv2dOptions{
            .in_channels = channels, .out_channels = squeeze_channels, .kernel_size = {1}});
    register_module(
        "fc2", fc2,
        Conv2dOptions{
            .in_channels = squeeze_channels, .out_channels = channels, .kernel_size = {1}});
    register_module("activation", activation);
    register_module("scale_activation", scale_activation);
    register_module("skip_mul", skip_mul);
  }
  /// x [N, channels, H, W].
  Tensor forward(const Tensor& x) const override {
    return skip_mul->mul(scale_activation(fc2(activation(fc1(avgpool(x))))), x);
  }
};

}  // namespace quanta::nn::models
