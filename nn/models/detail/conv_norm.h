#pragma once

// Private: what the MobileNets share.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/norm.h"

namespace quanta::nn::models::detail {

/// torchvision's rounding of channel counts: to a multiple of 8, never more than 10 % down.
std::int64_t make_divisible(double value);

/// A convolution without bias whose padding keeps the size where the stride is 1. Takes channels,
/// kernel_size, stride, dilation and groups from `options`.
std::shared_ptr<Module> same_conv(Conv2dOptions options);

/// torchvision's Conv2dNormActivation: same_conv, the batch norm over its channels with eps and
/// momentum of `norm`, and `activation` unless that is null.
std::shared_ptr<Sequential> conv_norm_activation(const Conv2dOptions& conv, BatchNorm2dOptions norm,
                                                 std::shared_ptr<Module> activation);

/// In every Sequential of `model`: a convolution, the batch norm after it, and a ReLU after that.
std::vector<std::vector<std::string>> conv_norm_groups(const Module& model);

/// Takes note of what torchvision's networks save for a skip_add that is never called, so that
/// their files load strictly into blocks without one: scale 1 and zero point 0 of converted ones,
/// the observers and fake quantizers of prepared ones.
void read_unused_skip_add(StateReader& reader);

}  // namespace quanta::nn::models::detail
