#pragma once

#include <map>
#include <string>
#include <vector>

#include "quanta/fusion/find_fusion_groups.h"
#include "quanta/nn/module.h"

namespace quanta {

/// Mean and standard deviation of each channel of a layer's result, before what is fused behind it.
struct ChannelStatistics {
  std::vector<float> mean;
  std::vector<float> deviation;
};

/// What batch norms say of the results of the layers that they are folded into, by the layer's path.
struct BatchNormStatistics {
  std::map<std::string, ChannelStatistics> layers{};
};

/// Gathered before fuse_modules, which folds the batch norms away: for each group of a layer and a
/// batch norm behind it the mean beta and the deviation |gamma| of what the norm gives (Nagel et al.
/// 2019, Data-Free Quantization Through Weight Equalization and Bias Correction). Groups without a
/// batch norm, and norms without parameters, are left out.
///
///   const FusionGroups groups = find_fusion_groups(net, x);
///   const BatchNormStatistics statistics = batch_norm_statistics(net, groups);
///   fuse_modules(net, groups);
///
/// Throws ArgumentError for a path that the network does not have. Safe from many threads at once.
BatchNormStatistics batch_norm_statistics(const nn::Module& net, const FusionGroups& groups);

}  // namespace quanta
