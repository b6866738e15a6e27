#pragma once

#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/nn/module.h"

namespace quanta {

/// Makes one module of several. `modules` are the occupants of the named places, in order.
using Fuser = std::function<std::shared_ptr<nn::Module>(
    const std::vector<std::shared_ptr<nn::Module>>& modules)>;

/// Sequences of exact types with their fusers; later entries replace earlier ones.
using FuserTable = std::vector<std::pair<std::vector<std::type_index>, Fuser>>;

/// Replaces sequences of modules in place, as torch.ao.quantization.fuse_modules does in eval mode:
/// the fused module takes the first name, the others become Identity. Groups are dotted paths:
///
///   fuse_modules(net, {{"conv1", "bn1", "relu"}, {"layer1.0.conv2", "layer1.0.bn2"}});
///
/// Known: Conv1d/2d/3d + BatchNorm (folded), + ReLU; Conv + ReLU; Linear + ReLU; Linear +
/// BatchNorm1d (folded); BatchNorm2d/3d + ReLU; ConvTranspose + BatchNorm (folded); Linear +
/// LeakyReLU; Linear + Tanh. `additional` extends the table. Pre-forward hooks of the first and
/// forward hooks of the last module move to the fused one. Throws ArgumentError for an unknown path
/// or sequence, modules in train mode where a BatchNorm is folded, or unequal channel counts; then
/// nothing was changed.
void fuse_modules(nn::Module& model, const std::vector<std::vector<std::string>>& groups,
                  const FuserTable& additional = {});

/// Weight and bias of a convolution or linear layer that does what it and the batch norm after it
/// did: w * (gamma * r), (b - mean) * r * gamma + beta, r = 1 / sqrt(var + eps), in float32.
/// Channels are dimension 0 of `weight` (transposed convolutions: see `transposed_groups`, which is
/// their group count, else 0). Undefined bias, gamma, beta stand for 0, 1, 0.
struct FoldedWeights {
  Tensor weight;
  Tensor bias;
};
FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                              const Tensor& running_var, double eps, const Tensor& gamma,
                              const Tensor& beta, std::int64_t transposed_groups = 0);

}  // namespace quanta
